"""Decides if a run that copies tables without being asked may start, and which of those that are due it copies."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lakeproof.names import TableName
from lakeproof.state.due_copies import DAY, Recopy
from orchestration.policies.run import JobRuns, other_runs, pause_after_failures


@dataclass(frozen=True, slots=True)
class CopyDecision:
    """The `tables` to copy together, empty if nothing is to be done; `reason` explains it in the UI and in the run.

    `dead` are runs whose process is gone; they must be failed first.
    """

    tables: tuple[TableName, ...]
    reason: str
    dead: tuple[str, ...] = ()


def decide_copy(
    due: Recopy, listed: Collection[TableName], bootstraps: JobRuns, pause_s: float, *, copying: bool
) -> CopyDecision:
    """Return the tables to copy now. `listed` are the tables that Dagster shows; `copying`: a snapshot is in progress."""
    tables = tuple(table for table in sorted(due.due) if table in listed)
    others = other_runs(bootstraps)
    why_not = None if tables else _why_none(due, listed)
    why_not = why_not or others.busy or ("a snapshot is being copied" if copying else None)
    # Such a run may fail before it has begun to copy, and then leaves nothing in the lake to count.
    why_not = why_not or pause_after_failures(bootstraps, pause_s, DAY.total_seconds())
    if why_not is not None:
        return CopyDecision((), why_not, others.dead)
    return CopyDecision(tables, "; ".join(f"{table}: {due.due[table]}" for table in tables), others.dead)


def _why_none(due: Recopy, listed: Collection[TableName]) -> str:
    reasons = [f"{table} is copied again after {when:%Y-%m-%d %H:%M:%S} UTC" for table, when in due.paused.items()]
    reasons += [f"{table} is not in the configuration's `tables`" for table in sorted(due.due) if table not in listed]
    return "; ".join(reasons) or "no table waits for a snapshot"
