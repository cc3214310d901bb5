"""Reads the source's side of a proof under its snapshot: small tables together, a large one by itself.

A table that is read by itself costs a dozen further statements: its transaction, its lock, the comparison of its files and
of its catalog. Small tables share these statements, and one statement reads them all. While locks are held, no other lock is
waited for: if a lock is not free at once, or anything else fails, each table is read by itself, so that no table's result
depends on another table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeproof.errors import DefiniteError, LakeproofError, SourceError, TableError, TransientError
from lakeproof.events import Stop
from lakeproof.names import TableName
from lakeproof.postgres.catalog.tables import PublishedTable
from lakeproof.postgres.copying.snapshot import TableChangedError
from lakeproof.progress import Progress, Work
from lakeproof.proof.compare import Buckets, rows_in
from lakeproof.proof.source.side import source_buckets

if TYPE_CHECKING:
    from lakeproof.proof.tables import OpenProof

# What is read by one statement: so many tables, columns and rows (as the lake has them) at most. An ALTER of one of the
# tables waits for all of them.
TABLES_TOGETHER = 50
COLUMNS_TOGETHER = 2_000
ROWS_TOGETHER = 200_000
# What keeps the source from giving one table: no other table's proof ends with it.
UNREAD = (SourceError, TableError, TransientError)


@dataclass(frozen=True, slots=True)
class SourceSide:
    """A table as the snapshot has it: its buckets, or why it could not be read."""

    table: PublishedTable | None
    buckets: Buckets | None
    blocked: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A table to be read in a number of buckets; `rows`: about so many, None if nobody knows."""

    table: PublishedTable
    buckets: int
    rows: int | None


def read_source(
    proof: OpenProof, asked: Sequence[Asked], refused: Mapping[TableName, DefiniteError], stop: Stop
) -> dict[TableName, SourceSide]:
    """Read every table's buckets under the snapshot; `refused` are those that can't be."""
    sides = {table: SourceSide(None, None, f"{e.reason}; {e.remedy}") for table, e in refused.items()}
    progress = Progress(proof.report, Work("prove.progress", "reading the source", len(asked)))
    progress.begin()
    for together in _groups(asked):
        for side in _read(proof, together, stop):
            if side.table is not None:
                sides[side.table.table] = side
            if side.buckets is not None:
                progress.done(rows_in(side.buckets))
    return sides


def _groups(asked: Sequence[Asked]) -> Iterator[list[Asked]]:
    """Yield tables that are read together, in their order."""
    group: list[Asked] = []
    for each in asked:
        whole = [*group, each]
        columns = sum(len(one.table.version.columns) for one in whole)
        rows = sum(ROWS_TOGETHER if one.rows is None else one.rows for one in whole)
        if group and (len(whole) > TABLES_TOGETHER or columns > COLUMNS_TOGETHER or rows > ROWS_TOGETHER):
            yield group
            whole = [each]
        group = whole
    if group:
        yield group


def _read(proof: OpenProof, asked: Sequence[Asked], stop: Stop) -> list[SourceSide]:
    """Read tables by one statement; several of which one can't be read, each by itself."""
    if stop.requested:
        return [SourceSide(one.table, None, "it was asked to stop") for one in asked]
    try:
        with proof.session.guard(proof.conn, proof.source, *(one.table for one in asked)):
            buckets = source_buckets(proof.conn, [(one.table, one.buckets) for one in asked])
    except LakeproofError as error:
        if len(asked) > 1:
            return [side for one in asked for side in _read(proof, [one], stop)]
        if not isinstance(error, UNREAD):
            raise
        return [SourceSide(asked[0].table, None, why_unread(error))]
    return [SourceSide(one.table, read) for one, read in zip(asked, buckets, strict=True)]


def why_unread(error: LakeproofError) -> str:
    """Return why a table is not compared, and what to do: the next proof has a later snapshot, and nothing is copied."""
    changed = isinstance(error, TableChangedError)
    return f"{error.reason}; {'run `lakeproof prove` again' if changed else error.remedy}"
