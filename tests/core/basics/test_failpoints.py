"""Failpoints are spelled in one way, count their passings, and do nothing when nobody asked."""

from __future__ import annotations

import ast
import dis
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lakeproof.failpoints import Armed, failpoint
from scripts.source_trees import nodes_of, text_of

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("text", "armed"),
    [
        ("drain.received", Armed("drain.received", 1, None)),
        ("drain.received:7", Armed("drain.received", 7, None)),
        ("cycle.after_history:2", Armed("cycle.after_history", 2, None)),
        ("drain.received@hang:2.5", Armed("drain.received", 1, 2.5)),
        ("drain.received:3@hang:1", Armed("drain.received", 3, 1.0)),
        ("drain.received:3@hold:/x/a:b", Armed("drain.received", 3, None, Path("/x/a:b"))),
    ],
)
def test_what_can_be_written(text: str, armed: Armed) -> None:
    """A name, a passing, a pause or a file."""
    read = Armed.parse(text)
    assert (read.name, read.nth, read.hang_s, read.hold) == (armed.name, armed.nth, armed.hang_s, armed.hold)


@pytest.mark.parametrize("text", [":3", "x:0", "x@sleep:1", "x@hang:long", "@hang:1", "x@hold:"])
def test_anything_else_is_refused(text: str) -> None:
    """A misspelled failpoint would make a test that tests nothing."""
    with pytest.raises(ValueError, match=r"LAKEPROOF_FAILPOINT|float"):
        Armed.parse(text)


def test_the_nth_passing_of_the_name_is_the_one() -> None:
    """Other failpoints' passings don't count."""
    armed = Armed.parse("a.b:2")
    assert [armed.passing(name) for name in ("a.b", "a.c", "a.b", "a.b")] == [False, False, True, False]


def test_unset_it_does_nothing() -> None:
    """Production runs have no failpoint set."""
    failpoint("drain.received")


def test_set_it_kills_the_process_as_kill_minus_9_does() -> None:
    """The process dies at once, without any clean-up."""
    code = "from lakeproof.failpoints import failpoint\nfailpoint('a.b')\nfailpoint('x.y')\nprint('alive')"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"LAKEPROOF_FAILPOINT": "x.y"}, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (-9, b"")


def test_held_it_waits_until_its_file_is_gone(tmp_path: Path) -> None:
    """A test needs no clock to do something meanwhile."""
    file = tmp_path / "here"
    code = "from lakeproof.failpoints import failpoint\nfailpoint('x.y')\nfailpoint('x.y')\nprint('on')"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={"LAKEPROOF_FAILPOINT": f"x.y@hold:{file}", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    )
    deadline = time.monotonic() + 90
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert process.poll() is None
    file.unlink()
    assert process.communicate(timeout=90)[0] == b"on\n"


def test_a_passing_costs_nothing_when_it_is_off() -> None:
    """An inactive failpoint costs a look-up and a comparison: nothing is called, and nothing is built."""
    instructions = list(dis.get_instructions(failpoint))
    jump = next(number for number, each in enumerate(instructions) if "JUMP" in each.opname)
    behind = [each for each in instructions if each.offset >= instructions[jump].argval]
    operations = [each.opname for each in (*instructions[: jump + 1], *behind)]
    assert sum(name.startswith("LOAD_GLOBAL") for name in operations) == 1
    assert not any("CALL" in name or "BUILD" in name or "ATTR" in name for name in operations)
    assert operations[-1].startswith("RETURN")
    assert len(operations) < 10


def test_every_failpoint_is_one_where_a_test_kills() -> None:
    """A place where no test dies would be a claim."""
    places = {
        str(node.args[0].value)
        for path in (ROOT / "lakeproof").rglob("*.py")
        if "failpoint(" in text_of(path)
        for node in nodes_of(path, ast.Call)
        if getattr(node.func, "id", "") == "failpoint"
        if isinstance(node.args[0], ast.Constant)
    }
    rooms = (
        "drain|bootstrap|snapshot|recover|cycle|apply|follow|group|links|maintenance|maintain|view|prove|pause|resume"
    )
    rooms += "|repair"
    texts = {
        str(node.value)
        for path in (ROOT / "tests").rglob("test_*.py")
        if path != Path(__file__) and re.search(rf"[\"'](?:{rooms})\.[a-z_]", text_of(path))
        for node in nodes_of(path, ast.Constant)
        if isinstance(node.value, str)
    }
    named = [re.fullmatch(rf"((?:{rooms})\.[a-z_]+)(?::\d+)?(@(?:hang|hold):.*)?", text) for text in texts]
    killed_at = {match[1] for match in named if match is not None and match[2] is None}
    assert len(places) > 10
    assert places - killed_at == set()
