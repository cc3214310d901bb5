"""Decides whether a run that copies tables without being asked may start, and of which tables.

Pure: no instance, lake or clock is touched here. Which tables are due is said by `lakeproof.commands.due_copies`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from lakeproof.commands.due_copies import Recopy, not_before
from lakeproof.names import TableName
from orchestration.policies.drain import Phase, Run
from orchestration.policies.run import others


@dataclass(frozen=True, slots=True)
class Copy:
    """`tables` are to be copied together, none where nothing is to be done; `reason` says why, for the UI and the run.

    `dead` are runs whose process is gone; they are to be failed first.
    """

    tables: tuple[TableName, ...]
    reason: str
    dead: tuple[str, ...] = ()


def decide(
    found: Recopy,
    listed: Collection[TableName],
    runs: Sequence[Run],
    now: float,
    pause_s: float,
    *,
    working: bool | None,
    copying: bool,
) -> Copy:
    """`runs` are those of the bootstrap job, newest first; `listed` the tables that Dagster shows.

    `working`: whether one of these runs has a process, None where nobody knows; `copying`: somebody copies a snapshot.

    A run that fails before it has begun to copy leaves nothing in the lake to count, so failures are counted here.
    """
    chosen = tuple(table for table in sorted(found.due) if table in listed)
    those = others(runs, now, working)
    if not chosen:
        return Copy((), _nothing(found, listed), those.dead)
    busy = those.busy or ("a snapshot is being copied" if copying else None)
    if busy is not None:
        return Copy((), busy, those.dead)
    first = not_before(_failures(runs), pause_s)
    if first is not None and first.timestamp() > now:
        return Copy((), f"the last run failed; the next try is at {first:%Y-%m-%d %H:%M:%S} UTC", those.dead)
    return Copy(chosen, "; ".join(f"{table}: {found.due[table]}" for table in chosen), those.dead)


def _nothing(found: Recopy, listed: Collection[TableName]) -> str:
    told = [f"{table} is copied again after {when:%Y-%m-%d %H:%M:%S} UTC" for table, when in found.paused.items()]
    told += [f"{table} is not in the configuration's `tables`" for table in sorted(found.due) if table not in listed]
    return "; ".join(told) or "no table waits for a snapshot"


def _failures(runs: Sequence[Run]) -> tuple[datetime, ...]:
    """When the runs ended that failed one after the other, up to now."""
    found = []
    for run in runs:
        if run.phase is not Phase.FAILED:
            break
        found.append(datetime.fromtimestamp(run.ended or run.created, timezone.utc))
    return tuple(found)
