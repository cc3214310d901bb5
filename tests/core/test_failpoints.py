"""Failpoints are spelled in one way, count their passings, and do nothing when nobody asked."""

from __future__ import annotations

import subprocess
import sys

import pytest

from wal2delta.failpoints import Armed, failpoint


@pytest.mark.parametrize(
    ("text", "name", "nth", "hang_s"),
    [
        ("drain.received", "drain.received", 1, None),
        ("drain.received:7", "drain.received", 7, None),
        ("cycle.after_history:2", "cycle.after_history", 2, None),
        ("drain.received@hang:2.5", "drain.received", 1, 2.5),
        ("drain.received:3@hang:1", "drain.received", 3, 1.0),
    ],
)
def test_what_can_be_written(text: str, name: str, nth: int, hang_s: float | None) -> None:
    """A name, a passing, a pause."""
    armed = Armed.parse(text)
    assert (armed.name, armed.nth, armed.hang_s) == (name, nth, hang_s)


@pytest.mark.parametrize("text", [":3", "x:0", "x@sleep:1", "x@hang:long", "@hang:1"])
def test_anything_else_is_refused(text: str) -> None:
    """A misspelled failpoint would make a test that tests nothing."""
    with pytest.raises(ValueError, match=r"WAL2DELTA_FAILPOINT|float"):
        Armed.parse(text)


def test_the_nth_passing_of_the_name_is_the_one() -> None:
    """Others don't count."""
    armed = Armed.parse("a.b:2")
    assert [armed.passing(name) for name in ("a.b", "a.c", "a.b", "a.b")] == [False, False, True, False]


def test_unset_it_does_nothing() -> None:
    """As everywhere but in these tests."""
    failpoint("drain.received")


def test_set_it_kills_the_process_as_kill_minus_9_does() -> None:
    """At once, without any clean-up."""
    code = "from wal2delta.failpoints import failpoint\nfailpoint('a.b')\nfailpoint('x.y')\nprint('alive')"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"WAL2DELTA_FAILPOINT": "x.y"}, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (-9, b"")
