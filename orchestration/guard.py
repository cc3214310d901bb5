"""Decides whether a scheduled run may start while others of its job are there.

Pure: no instance or clock is touched here. That no two writers meet in the lake is the lease's work, not this module's;
here only pointless runs are kept away.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestration.keeper import Phase, Run

# A process that was killed leaves its run STARTED for ever. After this long another is started beside it: the lease
# decides between them if the first is alive after all.
IN_PROGRESS_S_MAX = 6 * 3600.0


def in_progress(runs: Sequence[Run], now: float) -> str | None:
    """Why a new run must not start, None where it may."""
    for run in runs:
        if run.phase in (Phase.QUEUED, Phase.STARTING):
            age_s = now - run.created
        elif run.phase is Phase.STARTED:
            age_s = now - (run.started or run.created)
        else:
            continue
        if age_s < IN_PROGRESS_S_MAX:
            return f"run {run.id[:8]} is {run.phase.value}"
    return None
