"""Every section of the manual that a message names is there, and `lakeproof help` shows it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from lakeproof.cli.machine_commands import matching, sections
from lakeproof.cli.main import main
from lakeproof.errors import manual, topic
from scripts.source_trees import nodes_of, text_of

_ROOT = Path(__file__).resolve().parents[3]
_ROOMS = ("lakeproof", "orchestration", "assets", "resources", "jobs")


def named() -> list[tuple[str, str]]:
    """The page's title and the heading of every section that code names."""
    files = [file for room in _ROOMS for file in sorted((_ROOT / room).rglob("*.py"))]
    calls = [call for file in files if "manual(" in text_of(file) for call in nodes_of(file, ast.Call)]
    ours = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "manual"]
    return [(ast.literal_eval(call.args[0]), ast.literal_eval(call.args[1])) for call in ours]


@pytest.mark.parametrize(("page", "heading"), sorted(set(named())))
def test_a_section_that_a_message_names_is_shown(page: str, heading: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By the topic in the message, without a configuration; of several with that heading the page is one's."""
    words = manual(page, heading).strip("`").split()
    assert words[:2] == ["lakeproof", "help"]
    assert (page, heading) in [(section.page, section.heading) for section in matching(words[2:])]
    assert main(words[1:]) == 0
    assert heading in capsys.readouterr().out


def test_a_topic_is_a_heading_or_some_of_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    """A heading that nobody has is refused with the nearest; one that many have is listed."""
    assert [section.heading for section in matching(["slot", "lost"])] == ["The slot is lost"]
    assert main(["help", "the-slot-is-lots"]) == 2
    assert "did you mean the-slot-is-lost?" in capsys.readouterr().err
    assert main(["help", "the"]) == 0
    assert "the-slot-is-lost" in capsys.readouterr().out
    assert main(["help"]) == 0
    assert topic("Running it") in capsys.readouterr().out


def test_a_link_becomes_the_command_that_shows_its_section() -> None:
    """A terminal has no links."""
    commands = {name for section in sections() for name in re.findall(r"\[lakeproof help ([^\]]+)\]", section.text)}
    assert {"without-a-network", "a-location-of-1-000-tables"} <= commands
    assert "](#" not in "".join(section.text for section in sections())
    assert [name for name in sorted(commands) if not matching([name])] == []


def test_no_heading_is_taken_from_a_block_of_code() -> None:
    """A comment of a shell begins like a heading."""
    assert all(section.text.startswith("#") for section in sections())
    assert not any(section.heading.startswith(("or:", "lakeproof.yaml:")) for section in sections())
