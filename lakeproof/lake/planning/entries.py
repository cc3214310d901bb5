"""Bounds the tables that enter the lake in one cycle, so that a killed process loses the work of few of them.

The choice of the copies that may enter is in `plan`, entering a copy in `lakeproof.lake.cycle`.

Tables enter in the order of their places. A cycle that leaves some out ends at the place of the last one that it takes, so
the range goes on behind the copies, and no copy has to catch up with more than it would have to at once. A copy that was
left out enters later from the same place. A table that was created in the stream is never left out of a range that has its
place: behind it nobody would look for it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakeproof.lake.planning.created_tables import CreatedTable
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.snapshot.folder import FinishedCopy

_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class EntryLimit:
    """The most tables that enter in one cycle, and the most bytes of their copies; one table enters in any case."""

    tables: int = _NO_LIMIT
    copy_bytes: int = _NO_LIMIT


@dataclass(frozen=True, slots=True)
class Entrant:
    """A table that may enter with a cycle: by a `copy`, which has no row if the table was `created` in the stream."""

    copy: FinishedCopy
    created: CreatedTable | None = None

    @property
    def place(self) -> Lsn:
        """Where it enters. Before that, another table may have had the name of one that was created."""
        return self.copy.consistent_point if self.created is None else self.created.enters_at


def entering_until(
    entrants: Mapping[TableName, Entrant], limit: EntryLimit, span: tuple[Lsn, Lsn]
) -> tuple[Lsn, dict[TableName, Entrant]]:
    """Return where the cycle of `span` ends, and those of `entrants` that enter in it."""
    start, stop = span
    waiting = sorted((t for t, e in entrants.items() if e.place <= stop), key=lambda t: (entrants[t].place, t))
    taken: list[TableName] = []
    copy_bytes = 0
    for table in waiting:
        copy_bytes += sum(chunk.bytes for chunk in entrants[table].copy.table.chunks)
        if taken and (len(taken) >= limit.tables or copy_bytes > limit.copy_bytes):
            stop = max(start, entrants[taken[-1]].place)
            break
        taken.append(table)
    own = [t for t in waiting if (e := entrants[t]).created is not None and e.place <= stop and t not in taken]
    return stop, {t: entrants[t] for t in [*taken, *own]}
