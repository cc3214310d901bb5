"""Writes what the code knows into the manual: the options of every command, and the text of every error.

Sentences about them stand on the pages, outside of the marked parts, and do not belong here. `--check` only compares.
The configuration and the metrics have pages of their own, which tests compare with their models.
"""

from __future__ import annotations

import argparse
import fnmatch
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lakeproof.cli.arguments import parser
from scripts.error_texts import ErrorText, held, mistakes, texts

ROOT = Path(__file__).resolve().parent.parent
COMMAND_LINE = ROOT / "docs" / "reference" / "command-line.md"
RUNBOOK = ROOT / "docs" / "runbook.md"
# `<!-- texts: MODULE … -->`: modules by pattern; a text is where the most exact pattern matches its module.
_MARK = re.compile(r"(?P<begin><!-- texts: (?P<what>[^\n]+?) -->\n).*?(?P<end><!-- end of texts -->)", re.DOTALL)
_GROUPS = {
    "try again": "Exit status 3, to be tried again:",
    "change something": "Exit status 2, until a person changes something:",
    "finding": "Findings of `check`:",
    "report it": "A mistake in lakeproof, to be reported:",
}
_HEAD = """\
# Every command and its options

Written by `scripts/reference.py` from the program itself; `lakeproof COMMAND --help` shows the same. What the commands do: \
[the command line](../commands.md).
"""


def command_line() -> str:
    """Return the page of all commands."""
    top = Command(parser())
    parts = [_HEAD, "## lakeproof\n", _usage(top), _table(top)]
    for name, command in commands():
        parts += [f"## {name}\n", f"{command.parser.description}\n", _usage(command), _table(command)]
    return "\n".join(parts)


@dataclass(frozen=True, slots=True)
class Command:
    """A command as argparse has it."""

    parser: argparse.ArgumentParser

    @property
    def actions(self) -> list[argparse.Action]:
        """Its options and arguments."""
        return self.parser._actions  # noqa: SLF001  argparse shows its options in no other way


def commands() -> Iterator[tuple[str, Command]]:
    """Yield each command with its name."""
    for action in Command(parser()).actions:
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  argparse has no public name for it
            yield from ((name, Command(command)) for name, command in action.choices.items())


def _options(command: Command) -> Iterator[tuple[argparse.Action, str, str]]:
    """Yield each option as it is typed, with its meaning; those of every command are at the top alone."""
    for action in command.actions:
        if action.help == argparse.SUPPRESS or action.option_strings[-1:] == ["--help"] or action.dest == "command":
            continue
        if {"--config", "--json", "--debug"} & set(action.option_strings) and command.parser.prog != "lakeproof":
            continue
        value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
        yield action, " ".join(filter(None, (" or ".join(action.option_strings), value))), action.help or ""


def _usage(command: Command) -> str:
    words = [command.parser.prog]
    for action, typed, _ in _options(command):
        needed = action.required if action.option_strings else action.nargs != "?"
        words.append(typed if needed else f"[{typed}]")
    if command.parser.prog == "lakeproof":
        words += ["COMMAND", "…"]
    return "\n".join(["```text", " ".join(words), "```", ""])


def _table(command: Command) -> str:
    rows = [f"| `{option}` | {meaning.replace('|', '/')} |" for _, option, meaning in _options(command)]
    return "\n".join(["| option | meaning |", "|---|---|", *rows, ""]) if rows else ""


def runbook() -> str:
    """Return the runbook with its marked parts as the code has them now."""
    page = RUNBOOK.read_text(encoding="utf-8")
    patterns = [what["what"] for what in _MARK.finditer(page)]
    return _MARK.sub(lambda mark: mark["begin"] + _marked(mark["what"], patterns) + mark["end"], page)


def homeless() -> list[ErrorText]:
    """Return the texts whose module no part of the runbook names."""
    patterns = [mark["what"] for mark in _MARK.finditer(RUNBOOK.read_text(encoding="utf-8"))]
    return [text for text in texts() if _home(text, patterns) is None]


def _home(text: ErrorText, patterns: list[str]) -> str | None:
    matching = [
        (len(pattern), what) for what in patterns for pattern in what.split() if fnmatch.fnmatch(text.module, pattern)
    ]
    return max(matching)[1] if matching else None


def _marked(what: str, patterns: list[str]) -> str:
    if what == "held tables":
        reasons, remedies = held()
        return _block("The reasons:", reasons) + _block("The remedies:", remedies)
    if what == "mistakes of the configuration":
        return _block("One line each, with the file, the line and the key before it:", mistakes())
    mine = [text for text in texts() if _home(text, patterns) == what]
    return "".join(_block(head, [str(text) for text in mine if text.group == group]) for group, head in _GROUPS.items())


def _block(head: str, lines: list[str]) -> str:
    unique = sorted(dict.fromkeys(lines), key=lambda line: line.strip("{").lower())
    return "\n".join([head, "", "```text", *unique, "```", "", ""]) if unique else ""


def main() -> int:
    """Write both pages, or with `--check` return 1 if one of them is out of date."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--check", action="store_true", help="only compare")
    check = arguments.parse_args().check
    for path, text in ((COMMAND_LINE, command_line()), (RUNBOOK, runbook())):
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if check:
            print(
                f"{path.relative_to(ROOT)}: out of date; run `.venv/bin/python scripts/reference.py`", file=sys.stderr
            )
            return 1
        path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
