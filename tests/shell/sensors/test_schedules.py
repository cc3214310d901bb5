"""Starts of scheduled runs: intervals as cron expressions, runs in progress, and work that is there or not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakeproof.lake.records.views.cuts import ViewCut
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation
from lakeproof.state.due_work import compaction_is_pointless, refresh_is_pointless
from lakeproof.state.source import CutStatus, LandingStatus, SourceStatus
from lakeproof.state.status import StatusReport
from lakeproof.state.views import ViewStatus
from orchestration.policies.run import IN_PROGRESS_S_MAX, UNLOCKED_S_MAX, JobRuns, OtherRuns, Phase, Run, other_runs
from orchestration.schedules import cron_every

NOW = 2_000_000.0
LANDED = LandingStatus(Incarnation(1), Lsn(100), 7, "2026-01-01T00:00:00Z")
CUT = CutStatus(CycleNumber(3), Lsn(90), None, "2026-01-01T00:00:00Z", 2)
IDLE = SourceStatus("shop", None, None, None, LANDED, CUT, None, 10, {}, {}, lease_taken=False, lease=None, problems=())


@pytest.mark.parametrize(
    ("interval_s", "cron"),
    [
        (0.5, "*/1 * * * *"),
        (60, "*/1 * * * *"),
        (61, "*/2 * * * *"),
        (300, "*/5 * * * *"),
        (3540, "*/59 * * * *"),
        (3541, "0 */1 * * *"),
        (3600, "0 */1 * * *"),
        (3601, "0 */2 * * *"),
        (86_400, "0 0 * * *"),
        (10**9, "0 0 * * *"),
    ],
)
def test_an_interval_is_rounded_up_to_what_cron_can_say(interval_s: float, cron: str) -> None:
    """Minutes up to an hour, hours up to a day, then once a day."""
    assert cron_every(interval_s) == cron


def _run(phase: Phase, age_s: float, name: str = "abcdefgh-1") -> Run:
    return Run(name, phase, created=NOW - age_s, started=NOW - age_s)


@pytest.mark.parametrize(
    ("phase", "age_s", "locked", "expected"),
    [
        (Phase.QUEUED, 10, None, OtherRuns("run abcdefgh is queued")),
        (Phase.STARTING, 10, None, OtherRuns("run abcdefgh is starting")),
        (Phase.STARTED, 10, None, OtherRuns("run abcdefgh is started")),
        (Phase.STARTED, UNLOCKED_S_MAX - 1, False, OtherRuns("run abcdefgh is started")),
        (Phase.STARTED, UNLOCKED_S_MAX + 1, False, OtherRuns(None, ("abcdefgh-1",))),
        (Phase.STARTED, UNLOCKED_S_MAX + 1, True, OtherRuns("run abcdefgh is started")),
        (Phase.STARTED, UNLOCKED_S_MAX + 1, None, OtherRuns("run abcdefgh is started")),
        (Phase.QUEUED, UNLOCKED_S_MAX + 1, False, OtherRuns("run abcdefgh is queued")),
        (Phase.STARTED, IN_PROGRESS_S_MAX + 1, None, OtherRuns(None)),
        (Phase.STARTED, IN_PROGRESS_S_MAX + 1, True, OtherRuns("run abcdefgh is started")),
        (Phase.QUEUED, IN_PROGRESS_S_MAX + 1, None, OtherRuns(None)),
        (Phase.FAILED, 10, None, OtherRuns(None)),
        (Phase.ENDED, 10, False, OtherRuns(None)),
    ],
)
def test_a_run_in_progress_keeps_the_next_one_away_unless_it_is_dead(
    phase: Phase, age_s: float, locked: bool | None, expected: OtherRuns
) -> None:
    """A run that says STARTED while nobody holds its job's lock was killed; if there is no lock to ask, age decides."""
    assert other_runs(JobRuns([_run(phase, age_s)], NOW, locked)) == expected


def test_an_ended_run_in_front_does_not_hide_one_in_progress() -> None:
    """Every recent run is looked at."""
    runs = [_run(Phase.ENDED, 5, "r2"), _run(Phase.STARTED, 9, "r1")]
    assert other_runs(JobRuns(runs, NOW)) == OtherRuns("run r1 is started")


@pytest.mark.parametrize(
    ("state", "has_work", "says"),
    [
        (replace(IDLE, landing=None), False, "bootstrap first"),
        (replace(IDLE, landing=None), True, "bootstrap first"),
        (IDLE, False, "everything up to 0/64 is in the lake"),
        (replace(IDLE, lease_taken=True, lease="process 7 on host"), True, "process 7 on host"),
        (IDLE, True, None),
        (replace(IDLE, lease_taken=None), True, None),
    ],
)
def test_a_compaction_runs_only_if_it_has_work(state: SourceStatus, has_work: bool, says: str | None) -> None:
    """An idle source starts no JVM every minute."""
    reason = compaction_is_pointless(state, has_work=has_work)
    assert reason is None if says is None else says in (reason or "")


def _view(cut: ViewCut | None, behind: dict[str, int]) -> StatusReport:
    return StatusReport({"shop": IDLE, "crm": replace(IDLE, cut=None)}, {"v": ViewStatus("v", cut, behind, ())})


SEEN = ViewCut(
    CycleNumber(1),
    "v",
    0,
    "",
    {"shop": CycleNumber(3)},
    0,
    0,
    "2026-01-01T00:00:00Z",
    1,
    "full",
    None,
    None,
    0,
    "2026-01-01T00:00:00Z",
    {},
    None,
)


@pytest.mark.parametrize(
    ("state", "reads", "work"),
    [
        (_view(SEEN, {"shop": 0}), ["shop"], False),
        (_view(SEEN, {"shop": 2}), ["shop"], True),
        (_view(None, {}), ["shop"], True),
        (_view(None, {}), ["shop", "crm"], False),
    ],
)
def test_views_are_refreshed_only_where_a_source_has_a_newer_cut(
    state: StatusReport, reads: list[str], work: bool
) -> None:
    """A view that has never been made waits until each source it reads has a cut."""
    assert (refresh_is_pointless(state, {"v": reads}) is None) == work


def test_a_view_whose_definition_is_another_one_is_refreshed_at_the_same_cut() -> None:
    """Nothing else would bring its rows to the SQL that the configuration has now."""
    assert refresh_is_pointless(_view(SEEN, {"shop": 0}), {"v": ["shop"]}, {"v"}) is None
