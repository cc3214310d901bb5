"""Decisions of the sensor of held tables, case by case: which tables are copied, and when no run is started."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import dagster as dg
import pytest

from lakeproof.config.load import load
from lakeproof.names import TableName
from lakeproof.state.due_copies import DAY, Recopy, not_before
from orchestration.build import build
from orchestration.policies.copy import CopyDecision, decide_copy
from orchestration.policies.run import UNLOCKED_S_MAX, JobRuns, Phase, Run
from tests.support.shell.sample import write_sample

NOW = 1_700_000_000.0
A, B, C = (TableName("public", name) for name in "abc")
DUE = Recopy({A: "a column has another type", B: "it came into the publication"})


def _run(phase: Phase, ago: float, name: str = "abcdefgh-1") -> Run:
    return Run(name, phase, NOW - ago - 5, NOW - ago - 5, NOW - ago)


def _decide(due: Recopy, *runs: Run, locked: bool | None = None, copying: bool = False) -> CopyDecision:
    return decide_copy(due, (A, B), JobRuns(runs, NOW, locked), 600.0, copying=copying)


def test_what_is_due_is_copied_together_with_the_reasons() -> None:
    """The run says why, in each table's metadata."""
    message = "public.a: a column has another type; public.b: it came into the publication"
    assert _decide(DUE) == CopyDecision((A, B), message)
    assert _decide(DUE, _run(Phase.ENDED, 10), _run(Phase.FAILED, 20)).tables == (A, B)


def test_a_run_whose_process_is_gone_is_in_nobodys_way() -> None:
    """Nothing says that it ended; that nobody holds the lock of such runs does, once it must have come to that."""
    killed = _run(Phase.STARTED, UNLOCKED_S_MAX + 1)
    assert _decide(DUE, killed, locked=False) == replace(_decide(DUE), dead=(killed.id,))
    assert _decide(DUE, killed, locked=False, copying=True).dead == (killed.id,)
    assert _decide(Recopy(), killed, locked=False).dead == (killed.id,)
    assert _decide(DUE, killed, locked=None).tables == ()
    assert _decide(DUE, _run(Phase.STARTED, UNLOCKED_S_MAX - 10), locked=False).tables == ()


@pytest.mark.parametrize(
    ("copy", "says"),
    [
        (_decide(Recopy()), "no table waits for a snapshot"),
        (_decide(Recopy({C: "it came into the publication"})), "public.c is not in the configuration's `tables`"),
        (
            _decide(Recopy({}, {A: datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)})),
            "public.a is copied again after 2026-01-02 03:04:05 UTC",
        ),
        (_decide(DUE, copying=True), "a snapshot is being copied"),
        (_decide(DUE, _run(Phase.QUEUED, 10)), "run abcdefgh is queued"),
        (_decide(DUE, _run(Phase.STARTED, 10)), "run abcdefgh is started"),
        (_decide(DUE, _run(Phase.FAILED, 599)), "the last run failed; the next try is at"),
        (_decide(DUE, _run(Phase.FAILED, 1199), _run(Phase.FAILED, 3000)), "the last run failed"),
    ],
)
def test_nothing_is_started_and_the_reason_is_given(copy: CopyDecision, says: str) -> None:
    """No copy is due, or it is unknown, paused, in progress, or failed a moment ago."""
    assert copy.tables == ()
    assert says in copy.reason


def test_failed_runs_are_tried_again_ever_more_seldom() -> None:
    """The second try comes after the pause, the next after twice as long."""
    assert _decide(DUE, _run(Phase.FAILED, 601)).tables
    assert _decide(DUE, _run(Phase.FAILED, 1201), _run(Phase.FAILED, 3000)).tables
    assert not _decide(DUE, *(_run(Phase.FAILED, 1201.0 * n) for n in (1, 2, 3))).tables


def test_the_pause_grows_to_a_day_and_no_further() -> None:
    """The first copy is made at once; nobody copies for ever in a loop."""
    now = datetime.now(timezone.utc)
    assert not_before((), 600) is None
    waits = [not_before((now,) * n, 600.0) for n in (1, 2, 3, 8, 9, 1000)]
    expected = [*(timedelta(seconds=600 * 2**n) for n in (0, 1, 2, 7)), DAY, DAY]
    assert waits == [now + pause for pause in expected]


@pytest.mark.parametrize("held", ["wait", "copy"])
def test_the_sensor_exists_if_configured(tmp_path: Path, held: str) -> None:
    """A copy costs the source something: by default a person decides when."""
    path = write_sample(tmp_path)
    limits = "compaction: {mode: scheduled, interval_s: 90}"
    text = path.read_text(encoding="utf-8").replace(limits, f"{limits}\n    snapshot: {{held: {held}}}")
    path.write_text(text, encoding="utf-8")
    defs = build(load(path))
    dg.Definitions.validate_loadable(defs)
    names = {sensor.name for sensor in defs.sensors or ()}
    assert {n for n in names if n.endswith("_held_sensor")} == ({"shop_held_sensor"} if held == "copy" else set())
