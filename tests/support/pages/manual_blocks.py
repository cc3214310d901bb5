"""The fenced blocks of the manual's pages, and the commands in them.

If a command is right is decided by the tests (`core/project/test_manual_commands.py`, `scenarios/test_manual_pages.py`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_ENDS = {"|", "||", "&", "&&", ";", ">", ">>", "<"}
_ASSIGNMENT = re.compile(r"[A-Z_]+=.*", re.DOTALL)
# `sh`: run as it stands. Without a language or as `console`: commands, with their output maybe.
_SHELL = {"", "sh", "console"}


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its page, its first line's number, its language and its text."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a block: its words, without variables, pipes and what comes after them."""

    place: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.place}: {shlex.join(self.words)}"


def pages() -> list[Path]:
    """Return the pages that have commands; decisions quote what once was."""
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "docker").glob("*.md")]
    return sorted(path for path in paths if "decisions" not in path.parts and path.name != "CHANGELOG.md")


def blocks(*languages: str, page: str | None = None) -> list[Block]:
    """Return the blocks in these languages, of every page or of one."""
    return [
        Block(str(path.relative_to(ROOT)), text[: fence.start()].count("\n") + 1, fence[1], fence[2])
        for path in ([ROOT / page] if page else pages())
        for text in [path.read_text(encoding="utf-8")]
        for fence in _FENCE.finditer(text)
        if fence[1] in languages
    ]


def commands(programs: frozenset[str]) -> list[Command]:
    """Return each command on a page; of a block that also has output, the lines that begin with one of the programs."""
    return [command for block in blocks(*_SHELL) for command in _of_block(block, programs)]


def _of_block(block: Block, programs: frozenset[str]) -> Iterator[Command]:
    for number, line in lines(block.text):
        is_typed = line.startswith("$ ") or block.language == "sh"
        for words in split(line.removeprefix("$ ")):
            if is_typed or words[0] in programs:
                yield Command(f"{block.page}:{block.line + number}", words)


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers; one that goes on after a backslash is one."""
    whole, first = "", 1
    for number, line in enumerate(text.splitlines(), start=1):
        first = first if whole else number
        whole += line.removesuffix("\\")
        if not line.endswith("\\"):
            if whole.strip() and not whole.startswith("#"):
                yield first, whole
            whole = ""


def split(line: str) -> Iterator[tuple[str, ...]]:
    """Yield the commands of a line, as a shell would separate them; nothing of what no shell would read."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        tokens = list(lexer)
    except ValueError:
        return
    words: list[str] = []
    for token in [*tokens, ";"]:
        if token in _ENDS:
            while words and _ASSIGNMENT.fullmatch(words[0]):
                words.pop(0)
            if words:
                yield tuple(words)
            words = []
        else:
            words.append(token)


def in_sentences() -> Iterator[tuple[str, str]]:
    """Yield each `lakeproof …` in a sentence or a table, with its page."""
    for path in pages():
        for text in re.findall(r"(?<!`)`(lakeproof [^`\n]+)`(?!`)", _FENCE.sub("", path.read_text(encoding="utf-8"))):
            yield str(path.relative_to(ROOT)), text.replace("\\|", "|")
