"""The manual has every command, option and error of the code, and every page has its place in it.

That its links lead somewhere, and that nothing comes from another host, is checked by `scripts/manual.py`, a part of
`make check`; the commands on its pages by `test_manual_commands.py`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from lakeproof.lake.records.held import HeldCause
from scripts import error_texts, manual, reference

ROOT = Path(__file__).parents[3]
COMMANDS = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
# They are about a run that Dagster starts, and no person types them.
_OF_EVERY_COMMAND = {"-c", "--config", "--json", "--debug"}


def test_the_page_of_options_is_what_the_program_has() -> None:
    """`scripts/reference.py` would write it as it is."""
    assert reference.COMMAND_LINE.read_text(encoding="utf-8") == reference.command_line()


def test_the_runbook_has_every_error_as_the_code_has_it() -> None:
    """`scripts/reference.py` would write it as it is."""
    assert reference.RUNBOOK.read_text(encoding="utf-8") == reference.runbook()


def test_every_error_has_a_section_of_the_runbook() -> None:
    """A new module's errors need a section that says what they mean."""
    assert [str(text) for text in reference.homeless()] == []


def test_the_texts_are_read_from_the_source() -> None:
    """A kind of error without a text would mean that the reader of the source has gone blind."""
    texts = error_texts.texts()
    raised = {text.kind for text in texts}
    assert {"ConfigError", "SourceError", "GapError", "LakeError", "TableError", "TransientError", "finding"} <= raised
    assert len(texts) > 300
    reasons, remedies = error_texts.held()
    assert len(reasons) >= len(HeldCause)
    assert remedies
    assert all(text.reason and text.remedy for text in texts)


def test_a_quoted_message_is_one_of_the_code() -> None:
    """The table of the most frequent ones quotes parts of texts that there are."""
    section = reference.RUNBOOK.read_text(encoding="utf-8").split("## The most frequent ones")[1].split("\n## ")[0]
    texts = "\n".join([*map(str, error_texts.texts()), *error_texts.held()[0]])
    quoted = re.findall(r"(?<!\*)\*([^*\n]+)\*(?!\*)", section)
    assert len(quoted) > 8
    assert [quote for quote in quoted if quote not in texts] == []


@pytest.mark.parametrize(("name", "command"), list(reference.commands()), ids=lambda value: str(value)[:20])
def test_the_manual_explains_every_option(name: str, command: reference.Command) -> None:
    """Each command has a section that names each of its options."""
    section = next(part for part in COMMANDS.split("\n### ") if re.match(rf"[^\n]*`{name}\b", part))
    options = {option for action in command.actions for option in action.option_strings} - _OF_EVERY_COMMAND
    assert {option for option in options - {"-h", "--help"} if option not in section} == set()


def test_every_page_is_in_the_navigation() -> None:
    """A page that nothing leads to is not found."""
    assert manual.not_in_navigation() == []


def test_the_anchors_are_those_of_the_forge() -> None:
    """Spaces become hyphens, one for one; a hyphen stays, and signs go."""
    assert manual.slug("`prove [SOURCE] [--tables A,B]`", "-") == "prove-source---tables-ab"
    assert manual.slug("`sources.<name>.health`", "-") == "sourcesnamehealth"


def _build(folder: Path, page: str) -> Path:
    """Build a site of one page."""
    configuration = manual.CONFIGURATION.read_text(encoding="utf-8").partition("\nnav:\n")[0]
    (folder / manual.CONFIGURATION.name).write_text(f"{configuration}\nnav:\n  - README.md\n")
    (folder / "pages").mkdir()
    (folder / "pages" / "README.md").write_text(page)
    return manual.build_in(folder)


_BUILDS = pytest.mark.skipif(sys.version_info < (3, 11), reason="the manual's builder needs Python 3.11")


@_BUILDS
def test_a_page_without_a_fault_is_a_site(tmp_path: Path) -> None:
    """So it is the fault that the next test meets."""
    assert _build(tmp_path, "# Whole\n").is_dir()


@_BUILDS
@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("[a page](gone.md)", "page does not exist"),
        ("[a heading](#gone)", "anchor does not exist"),
        ('<img src="https://example.org/a.png">', "without a network would miss: https://example.org/a.png"),
        ('<script src="//example.org/a.js"></script>', "without a network would miss: //example.org/a.js"),
    ],
)
def test_a_page_with_a_fault_is_no_site(page: str, reason: str, tmp_path: Path) -> None:
    """The builder is strict, which a newer version of it might not be."""
    with pytest.raises(manual.SiteError, match=re.escape(reason)):
        _build(tmp_path, f"# Faulty\n\n{page}\n")
