"""Transactions whose landed files are gone, from the histories of a source's tables and without Spark.

Transactions that the landing still has belong to `transactions`. History has every change with its position, `xid` and time,
in files that may be in any order, so files are read as the feed comes to them:

    files by their least position    [2 ─ 5]  [4 ─ 9]  [10 ─ 12]     read two, yield up to 9, go on with the third

Memory: the rows of the files whose positions overlap; after maintenance, which puts files in order, those of one file of
each table.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.errors import LakeError
from lakeproof.hidden_columns import HIDDEN_PREFIX, LSN, ORD, XID
from lakeproof.lake.delta.arrow_rows import DeltaRows
from lakeproof.lake.delta.files.data_files import DeltaFile
from lakeproof.lake.records.documents import Cut, CutTable
from lakeproof.lake.records.store import cut_numbers, newest_cut, read_cut
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake


@dataclass(frozen=True, slots=True)
class _File:
    """A file of history, and the least position that its rows may have."""

    table: _History
    file: DeltaFile
    low: int


@dataclass(slots=True)
class _History:
    """A table's history at a cut; `waiting` are rows that were read and lie beyond what has been yielded."""

    name: TableName
    cut_table: CutTable
    rows: DeltaRows
    columns: list[str]
    waiting: list[pa.Table] = field(default_factory=list)

    def read(self, file: DeltaFile, start: Lsn, end: Lsn) -> None:
        """Read the changes of a file that end in (start, end] and belong to the cut."""
        for batch in self.rows.of_file(file, self.columns):
            kept = batch.filter(self.wanted(batch, start, end))
            if kept.num_rows:
                self.waiting.append(pa.table(kept))

    def take(self, horizon: int) -> pa.RecordBatch | None:
        """Return the rows up to a position in the order of their commits, and keep the others; None if there is none."""
        if not self.waiting:
            return None
        rows = pa.concat_tables(self.waiting)
        due = pc.less_equal(rows.column(LSN), horizon)
        later = rows.filter(pc.invert(due))
        self.waiting = [later] if later.num_rows else []
        rows = rows.filter(due).sort_by([(LSN, "ascending"), (ORD, "ascending")]).combine_chunks()
        return next(iter(rows.to_batches()), None)

    def wanted(self, batch: pa.RecordBatch, start: Lsn, end: Lsn) -> pa.Array:
        """Return which rows of a batch end in (start, end], belong to the cut, and are a transaction's."""
        lsn, ordinal = batch.column(LSN), batch.column(ORD)
        of_cut = pc.or_(
            pc.less(ordinal, self.cut_table.ordinals.whole),
            pc.and_(pc.less(ordinal, self.cut_table.ordinals.end), pc.less_equal(lsn, int(self.cut_table.at_lsn))),
        )
        inside = pc.and_(pc.greater(lsn, int(start)), pc.less_equal(lsn, int(end)))
        # Neither a copy's rows nor what a changed schema has put in rows are of a transaction.
        return pc.and_(pc.and_(of_cut, inside), pc.is_valid(batch.column(XID)))


def past_changes(
    chain: Chain, start: Lsn, end: Lsn, chosen: set[TableName] | None
) -> Iterator[list[tuple[TableName, pa.RecordBatch]]]:
    """Yield the changes of transactions that end in (start, end], which `chain` lacks: no commit is in two of the lists.

    Each batch has a table's rows in the order of their commits. `chosen` tables, or all that the newest cut has. Raises
    LakeError if a history does not reach back as far, or if a copy has put a table right since: changes are then missing.
    """
    lake = chain.lake
    cut = newest_cut(lake)
    if cut is None or cut.position < end or int(cut.incarnation) > 1:
        reason = "history does not lead from there to what has landed"
        raise LakeError(f"{lake.source}: changes after {start}", reason, _remedy(lake, cut))
    _check_all_there(chain, cut, start, chosen)
    tables = [_history(lake, cut, name, start) for name in cut.tables if chosen is None or name in chosen]
    first = _first_cut(lake, end)
    for table in tables:
        _check_exact(lake, table, first.tables.get(table.name), start, end)
    files = sorted((file for table in tables for file in _files(table, start, end)), key=lambda file: file.low)
    for place, file in enumerate(files):
        file.table.read(file.file, start, end)
        # What is before the least position of all the files to come is complete.
        horizon = files[place + 1].low - 1 if place + 1 < len(files) else int(end)
        if horizon >= file.low:
            taken = [(table.name, table.take(horizon)) for table in tables]
            yield [(name, batch) for name, batch in taken if batch is not None]


def _history(lake: SourceLake, cut: Cut, name: TableName, start: Lsn) -> _History:
    table = cut.tables[name]
    low = table.history_low
    if low is not None and low.at_lsn > start:
        reason = f"its history begins at {low.at_lsn}"
        raise LakeError(f"{lake.source}: {name}: changes after {start}", reason, _remedy(lake, cut))
    rows = DeltaRows.open(lake.url(lake.paths.history(name)), table.history_version)
    names = rows.schema.names
    hidden = [n for n in names if n.startswith(HIDDEN_PREFIX)]
    return _History(name, table, rows, [*hidden, *(n for n in names if n not in hidden)])


def _files(table: _History, start: Lsn, end: Lsn) -> Iterator[_File]:
    for file in table.rows.files:
        bounds = table.rows.bounds(file, LSN)
        low, high = (int(start) + 1, int(end)) if bounds is None else bounds
        if high > int(start) and low <= int(end):
            yield _File(table, file, max(int(low), int(start) + 1))


def _first_cut(lake: SourceLake, position: Lsn) -> Cut:
    """Return the earliest cut at or after a position that is kept; reads O(log n) cuts."""
    numbers = cut_numbers(lake)
    index = bisect_left(numbers, int(position), key=lambda number: int(read_cut(lake, number).position))
    return read_cut(lake, numbers[index])


def _check_exact(lake: SourceLake, table: _History, then: CutTable | None, start: Lsn, end: Lsn) -> None:
    """Raise LakeError unless history has every change of (start, end].

    `then` is the table at the first cut that has them: what a later copy put right matters only if that cut held the table.
    """
    entry = table.cut_table if then is None or then.at_lsn < end else then
    if entry.exact_from is not None and entry.exact_from > start:
        reason = f"a copy came at {entry.exact_from}, and changes before may be missing"
        remedy = f"read its tables at a cut there or later, and begin with {entry.exact_from}; or leave the table out"
        raise LakeError(f"{lake.source}: {table.name}: changes after {start}", reason, remedy)


def _check_all_there(chain: Chain, cut: Cut, start: Lsn, chosen: set[TableName] | None) -> None:
    """Raise LakeError if changes after `start` went with the landing, of a table without a copy, or that was held."""
    if chain.start is None:
        return
    lake = chain.lake
    unread, others = chain.start.unread, chain.start.unread_others
    late = [t for t, end in unread.items() if end > start and (chosen is None or t in chosen)]
    if late:
        table = min(late)
        raise _gone(f"{lake.source}: {table}", start, unread[table], "leave the table out")
    if others is not None and others > start and (chosen is None or chosen - cut.tables.keys()):
        raise _gone(f"{lake.source}: tables without a copy", start, others, "name those that have one")


def _gone(thing: str, start: Lsn, end: Lsn, remedy: str) -> LakeError:
    reason = f"those up to {end} went with the landing, and no history has them: the lake had no copy, or held it"
    return LakeError(f"{thing}: changes after {start}", reason, f"{remedy} (`tables`), or begin with {end}")


def _remedy(lake: SourceLake, cut: Cut | None) -> str:
    place = "its first cut" if cut is None else f"the newest cut, {cut.position}"
    return f"read the tables of {lake.source} at {place}, and begin with its position"
