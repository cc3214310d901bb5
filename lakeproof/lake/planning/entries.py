"""Bounds the tables that enter the lake in one cycle, so that a killed process loses the work of few of them.

The choice of the copies that may enter is in `plan`, entering a copy in `lakeproof.lake.cycle`.

Tables enter in the order of their places. A cycle that leaves some out ends at the place of the last one that it takes, so
the range goes on behind the copies, and no copy has to catch up with more than it would have to at once. A copy that was
left out enters later from the same place. A table that was created in the stream is never left out of a range that has its
place: behind it nobody would look for it again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.snapshot.folder import FinishedCopy

_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class EntryLimit:
    """The most tables that enter in one cycle, and the most bytes of their copies; one table enters in any case."""

    tables: int = _NO_LIMIT
    copy_bytes: int = _NO_LIMIT


def entering_until(
    pending: Mapping[TableName, FinishedCopy],
    places: Mapping[TableName, Lsn],
    created: Collection[TableName],
    limit: EntryLimit,
    span: tuple[Lsn, Lsn],
) -> tuple[Lsn, dict[TableName, FinishedCopy]]:
    """Return where the cycle of `span` ends, and those of `pending` that enter in it.

    `places` are where they may enter; `created` are the tables without a copy.
    """
    start, stop = span
    waiting = sorted((t for t in pending if places[t] <= stop), key=lambda t: (places[t], t))
    taken: list[TableName] = []
    copy_bytes = 0
    for table in waiting:
        copy_bytes += sum(chunk.bytes for chunk in pending[table].table.chunks)
        if taken and (len(taken) >= limit.tables or copy_bytes > limit.copy_bytes):
            stop = max(start, places[taken[-1]])
            break
        taken.append(table)
    own = [t for t in waiting if t in created and places[t] <= stop and t not in taken]
    return stop, {t: pending[t] for t in [*taken, *own]}
