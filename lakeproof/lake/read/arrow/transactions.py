"""Transactions of a source, whole and in commit order over all tables, from the landing and without Spark.

Changes from cut to cut belong to `changes` and `subscribe`. Here a transaction is seen as soon as it has landed, about a
second after its commit, and long before a cut has it.

    manifest by manifest → each file's batches, in order of `_lp_lsn` → those with the same commit are one transaction

Memory: the files of one segment that have few rows, and a batch of each other one. A transaction is not held as a whole.

Transactions whose landed files are gone come from history, which has every change with its position, `xid` and time, in
files that may be in any order. So files are read as the feed comes to them:

    files by their least position    [2 ─ 5]  [4 ─ 9]  [10 ─ 12]     read two, yield up to 9, go on with the third

Memory: the rows of the files whose positions overlap; after maintenance, which puts files in order, those of one file of
each table.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config
from lakeproof.errors import RECOVER, ConfigError, LakeError
from lakeproof.events import Stop
from lakeproof.hidden_columns import COMMIT_TIME, HIDDEN_PREFIX, LSN, ORD, XID
from lakeproof.lake.delta.arrow_rows import DeltaRows
from lakeproof.lake.delta.files.data_files import DeltaFile
from lakeproof.lake.records.cuts.choice import one_source, table_name
from lakeproof.lake.records.documents import Cut, CutTable
from lakeproof.lake.records.store import cut_numbers, newest_cut, read_cut
from lakeproof.landing.chain import Chain, newest_incarnation
from lakeproof.landing.segments.reader import Slice, slices
from lakeproof.lsn import Lsn
from lakeproof.names import TableName, Xid
from lakeproof.storage.source_lake import SourceLake

BATCH_ROWS = 8_192
# A drain makes segments durable about once a second; a look costs one request.
LOOK_EVERY_S = 0.25
LOOKS_PER_INCARNATION = 20


@dataclass(frozen=True, slots=True)
class TableChanges:
    """Changes of one table in a transaction, in their order: hidden columns (`_lp_op`, `_lp_ord`, …), then the table's."""

    table: TableName
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that has landed; its `position` is the end of its commit, from which a reader goes on.

    `commit_time` is None if no calendar holds it: then its rows have PostgreSQL's number in `_lp_commit_number`. `changes`
    may be read once, before the next transaction is asked for; what is not read is passed over.
    """

    source: str
    xid: Xid
    position: Lsn
    commit_time: datetime | None
    changes: Iterator[TableChanges]


@dataclass(slots=True)
class _Rows:
    """The rows of one file from its next transaction on."""

    table: TableName
    batches: Iterator[pa.RecordBatch]
    batch: pa.RecordBatch
    commits: np.ndarray[tuple[int], np.dtype[np.int64]]
    first: int = 0

    @property
    def commit(self) -> int:
        """The position of the next row's commit."""
        return int(self.commits[self.first])

    def take(self, commit: int) -> Iterator[TableChanges]:
        """Yield the rows of this commit, and go on behind them."""
        while self.first < len(self.commits) and self.commit == commit:
            end = int(np.searchsorted(self.commits, commit, side="right"))
            yield TableChanges(self.table, self.batch.slice(self.first, end - self.first))
            self.first = end
            if end == len(self.commits):
                self.advance()

    def advance(self) -> None:
        """Go on with the file's next batch; at its end there is no row left."""
        for batch in self.batches:
            if batch.num_rows:
                self.batch, self.commits, self.first = batch, _commits(batch), 0
                return
        self.batch, self.commits, self.first = self.batch.slice(0, 0), np.empty(0, np.int64), 0


def transactions(
    lake: Config | LakeLocation | str | Path,
    source: str | None = None,
    *,
    since: Lsn | str | None = None,
    tables: list[TableName | str] | None = None,
    follow: bool = False,
    stop: Stop | None = None,
) -> Iterator[Transaction]:
    """Yield the transactions that end after `since`, each whole, in commit order over all tables of a source.

    `since` is a position, usually that of the transaction that was handled last; by default the landing's beginning. What
    the landing no longer has is taken from history: a row's hidden columns are then history's. `tables` leaves others out,
    and transactions without any of them. With `follow` it goes on as transactions land, until `stop` is requested; without,
    it ends at what has landed. Raises ConfigError if the source must be named, LakeError if history does not reach back to
    `since` either, or a copy has come in the place of changes, and with `follow` if the source began a new incarnation, so
    that changes may be missing: then begin with the tables at a cut again.
    """
    place = one_source("transactions", lake, source)
    chosen = None if tables is None else {table_name(table) for table in tables}
    position = position_of(since)
    chain = Chain.open_newest(place)
    if chain is None:
        raise LakeError(f"{place.source}: landing", "there is none", f"run `lakeproof bootstrap {place.source}`")
    stop, looks = Stop() if stop is None else stop, 0
    while True:
        # Later on, too: the caller may take longer with a transaction than the landing keeps what is in the lake.
        if position is not None and position < chain.kept_from and chain.incarnation == 1:
            yield from _past_transactions(chain, position, chosen)
            position = chain.kept_from
        position = begins_at(chain, position)
        end = chain.end
        if position < end:
            yield from landed_transactions(chain, position, end, chosen)
            position = end
        if not follow or stop.wait(LOOK_EVERY_S):
            return
        chain.refresh()
        looks += 1
        if looks % LOOKS_PER_INCARNATION == 0:
            _check_incarnation(place, chain)


def _past_transactions(chain: Chain, since: Lsn, chosen: set[TableName] | None) -> Iterator[Transaction]:
    """Yield the transactions that end after `since` and that the landing no longer has; raises as `past_changes`."""
    for batches in past_changes(chain, since, chain.kept_from, chosen):
        rows = [rows_of(name, batch, iter(())) for name, batch in batches]
        yield from merge_transactions(chain.lake.source, rows, since)


def landed_transactions(chain: Chain, start: Lsn, end: Lsn, chosen: set[TableName] | None) -> Iterator[Transaction]:
    """Yield the transactions that end in (start, end], of the `chosen` tables or of all; `end` is a segment's.

    What the caller does not read of a transaction is passed over.
    """
    for _, pieces in groupby(slices(chain, start, end), key=lambda piece: piece.number):
        files = [piece for piece in pieces if chosen is None or piece.file.table in chosen]
        # Each transaction is in one segment.
        with ExitStack() as opened:
            yield from merge_transactions(chain.lake.source, [_rows(opened, piece) for piece in files], start)


def merge_transactions(source: str, rows: list[_Rows], start: Lsn) -> Iterator[Transaction]:
    """Yield the transactions that end after `start`; each of `rows` has its table's in the order of their commits."""
    # The number decides between two of them whose next commit is the same.
    waiting = [(each.commit, number) for number, each in enumerate(rows) if len(each.commits)]
    heapq.heapify(waiting)
    while waiting:
        commit = waiting[0][0]
        taken = []
        while waiting and waiting[0][0] == commit:
            taken.append(heapq.heappop(waiting)[1])
        first = rows[taken[0]]
        changes = (change for number in taken for change in rows[number].take(commit))
        if commit > int(start):
            xid, time = first.batch.column(XID)[first.first].as_py(), first.batch.column(COMMIT_TIME)[first.first]
            yield Transaction(source, Xid(xid), Lsn(commit), time.as_py(), changes)
        for _ in changes:
            pass
        for number in taken:
            if len(rows[number].commits):
                heapq.heappush(waiting, (rows[number].commit, number))


def _rows(opened: ExitStack, piece: Slice) -> _Rows:
    if piece.file.rows <= BATCH_ROWS:
        # A segment may have thousands of small files, and a process has a thousand descriptors.
        with piece.open() as file:
            batches = iter(file.read().to_batches())
    else:
        batches = opened.enter_context(piece.open()).iter_batches(BATCH_ROWS)
    return rows_of(piece.file.table, next(batches), batches)


def rows_of(table: TableName, first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> _Rows:
    """Return the rows of a table, in the order of their commits, from the first batch on."""
    return _Rows(table, batches, first, _commits(first))


def _commits(batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    column = batch.column(LSN)
    values = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    commits: np.ndarray[tuple[int], np.dtype[np.int64]] = values.to_numpy(zero_copy_only=False)
    return commits


def begins_at(chain: Chain, since: Lsn | None) -> Lsn:
    """Return the position at which a feed begins; raises LakeError if the landing has not all that follows `since`."""
    if since is not None and since < chain.kept_from:
        reason = f"the landing of incarnation {chain.incarnation} begins at {chain.kept_from}"
        remedy = f"compact {chain.lake.source}, read its tables at the newest cut, and begin with its position"
        raise LakeError(f"{chain.lake.source}: changes after {since}", reason, remedy)
    return chain.kept_from if since is None else since


def position_of(since: Lsn | str | None) -> Lsn | None:
    """Return a position or its text as an `Lsn`; raises ConfigError for another text."""
    if since is None or isinstance(since, Lsn):
        return since
    try:
        return Lsn.parse(since)
    except ValueError as error:
        raise ConfigError("since", str(error), "give a position, such as 0/16B3748") from None


def _check_incarnation(place: SourceLake, chain: Chain) -> None:
    newest = newest_incarnation(place)
    if newest is not None and newest != chain.incarnation:
        reason = f"its slot was lost, and incarnation {newest} has begun; changes between the two may be missing"
        remedy = f"read the tables at a cut, and go on from its position ({RECOVER})"
        raise LakeError(f"{place.source}: incarnation {chain.incarnation}", reason, remedy)


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
