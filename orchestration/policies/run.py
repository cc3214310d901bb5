"""Decides whether another run of a job is in the way of the next one.

Pure: no instance, lake or clock is touched here. Whether there is anything to do is asked in
`lakeproof.commands.pending_work`; that no two writers meet in the lake is the lease's work. Here only pointless runs
are kept away: each would start a JVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestration.policies.drain import Phase, Run

# A process that was killed leaves its run STARTED for ever. Where no lock tells, another is started after this long.
IN_PROGRESS_S_MAX = 6 * 3600.0
# A run takes its lock as soon as it has loaded the location: seconds, or a minute on a loaded machine.
UNLOCKED_S_MAX = 180.0


@dataclass(frozen=True, slots=True)
class Others:
    """The runs a new one must wait for: `busy` says why, None where there are none; `dead` ones are to be failed."""

    busy: str | None
    dead: tuple[str, ...] = ()


def others(runs: Sequence[Run], now: float, locked: bool | None = None) -> Others:
    """Judge the recent runs of a job. `locked` False: nobody has the lock that they hold while they live; None: unknown."""
    dead = tuple(run.id for run in runs if _is_dead(run, now, locked))
    live = [run for run in runs if run.id not in dead and _is_live(run, now, locked)]
    return Others(f"run {live[0].id[:8]} is {live[0].phase.value}" if live else None, dead)


def _age_s(run: Run, now: float) -> float:
    return now - (run.started if run.phase is Phase.STARTED and run.started else run.created)


def _is_live(run: Run, now: float, locked: bool | None) -> bool:
    if run.phase is Phase.STARTED and locked:
        return True
    return run.phase in (Phase.QUEUED, Phase.STARTING, Phase.STARTED) and _age_s(run, now) < IN_PROGRESS_S_MAX


def _is_dead(run: Run, now: float, locked: bool | None) -> bool:
    return run.phase is Phase.STARTED and locked is False and _age_s(run, now) > UNLOCKED_S_MAX
