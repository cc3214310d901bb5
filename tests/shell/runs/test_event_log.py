"""The engine's events in a run: all of them go to stderr, the few that matter to the run's own log."""

from __future__ import annotations

import pytest

from assets.support.event_log import FREE_LINES, QUIET_S, to_run_log
from lakeproof.events import Event


def test_every_event_is_in_the_captured_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """A run's stderr tab is all there is of a drain's flushes."""
    lines: list[str] = []
    report = to_run_log(lines.append, clock=lambda: 0.0)
    report(Event("drain.start", "connected"))
    report(Event("drain.flush", "2 rows"))
    stderr = capsys.readouterr().err
    assert "drain.start connected" in stderr
    assert "drain.flush 2 rows" in stderr
    assert lines == ["connected"]


def test_progress_is_thinned_out_and_results_are_not() -> None:
    """Each of a proof's tables is named, however fast they come."""
    lines: list[str] = []
    report = to_run_log(lines.append, clock=lambda: 0.0)
    for number in range(20):
        report(Event("bootstrap.progress", f"{number} %"))
        report(Event("prove.table", f"t{number} equal"))
    assert [line for line in lines if line.endswith("%")] == ["0 %"]
    assert [line for line in lines if line.endswith("equal")] == [f"t{number} equal" for number in range(20)]


def test_a_kind_of_event_has_a_bound() -> None:
    """Ten thousand tables do not make ten thousand rows in Dagster's database."""
    lines: list[str] = []
    now = 0.0
    report = to_run_log(lines.append, clock=lambda: now)
    for number in range(10_000):
        report(Event("prove.table", f"t{number} equal"))
    assert len(lines) == FREE_LINES
    now = QUIET_S
    report(Event("prove.table", "later"))
    assert lines[-1] == "later"
