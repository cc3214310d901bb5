"""One table in one cycle, written by this process: a range, or a first copy; history and current in one commit each.

Choosing tables and range belongs to `lakeproof.lake.planning`; running several tables to `apply_cycle`; what is
`Unsupported` in this process to `table_by_spark`.

Anything about a table's data that may be refused is evaluated before its history is committed: a refused table is left as it
was. A table without changes in the range is carried along without a commit. If a net change is empty, or meets no row,
current keeps its version while history gets its commit: the cut names both.

    history   each file of at least `LINK_BYTES_MIN`, with a vector over the rows outside the range; the rows of smaller
              files are read, and written together
    current   each such file at least half of whose rows are alive, with a vector over its dead rows; living rows of all
              other files are read, and written together; a vector in current's own files hides every row whose key is
              touched, and after a TRUNCATE all of current's files go

A row that lacks a value which its update left out is never linked: it is written anew, with its holder's name in history,
and with the value in current (`lakeproof.lake.fold.holders`). So is every row of a table with a computed `_lp_key`.

The files of a first copy become files of both layers, in current with a vector over the rows whose keys the changes since
the copy touch; these changes are a range like any other, on top of the copy's rows. A table that was created in the stream
has no copy, and begins with its changes. Cost: for each layer one pass over the files' bytes, and for current, if there are
changes, one scan of the copy's key columns; and the keys that a person configured are read, to see that each is there once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain

import numpy as np
import pyarrow as pa

from lakeproof.change_counts import ChangeCounts
from lakeproof.errors import InvariantError
from lakeproof.hidden_columns import DUP, FROM, KEY, LSN, OP, ORD, TEXT
from lakeproof.lake.columns import (
    column_names,
    current_columns,
    has_old_rows,
    keeps_key,
    lake_types,
    layer_columns,
    merge_key,
)
from lakeproof.lake.cycle.task import SnapshotEntry, TableCommits, TableResult, TableTask, carried
from lakeproof.lake.delta.files.links import landed_file
from lakeproof.lake.delta.link_commit import Link, LinkRequest, NewTable, RowCommit, links_fit, prepare_links
from lakeproof.lake.delta.search import ChunkBase, LakeBase
from lakeproof.lake.fold.key_fold import KEY_BYTES_MAX, KeyFold, fold_keys, in_landing, sum_of
from lakeproof.lake.records.documents import Copy, CutTable, HistorySum
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.lake.rows.change import (
    AllRows,
    DriftedError,
    Mask,
    Numbers,
    Removed,
    Unsupported,
    check_counts,
    check_keys,
    codes,
    in_memory,
    unchecked,
)
from lakeproof.lake.rows.file_rows import FoldedFile, LandedRange, TableRange, names_in_files
from lakeproof.lake.spark_on_demand import NoSparkError, SparkOnDemand
from lakeproof.landing.segments.segment import ROW_GROUP_BYTES
from lakeproof.names import Layer
from lakeproof.schema import SchemaVersion

# A file of less is read as quickly as it is linked, and small files make each later scan slower.
LINK_BYTES_MIN = 1 << 20
# So many bytes, decoded, of rows whose key is computed, one by one, in one thread; of more Spark writes the table.
COMPUTED_BYTES_MAX = 1 << 30
# What each file that is linked into history has beside the table's own columns.
_REQUIRED_IN_HISTORY = (TEXT, ORD, LSN, OP)
# What no landed file has.
_NOT_IN_FILES = frozenset({KEY, DUP, FROM})
# What a snapshot's rows have beside the table's columns, or what is computed from them: the rest of history's is NULL.
_OF_CHUNKS = frozenset({TEXT, ORD, LSN, OP, KEY, DUP})


def write_range(spark: SparkOnDemand, task: TableTask) -> TableResult:
    """Write a table's changes; raises `Unsupported`, before any commit, if Spark is to write them."""
    before = task.before
    if before is None:
        raise InvariantError(str(task.table), "has changes but is not in the lake", "report this")
    changes = task.changes_to_apply()
    if changes.counts.rows == 0:
        return carried(task, before)
    reason = _why_here(spark, task, changes.counts)
    commits = _prepare_range(task, before, of_one_schema(changes))
    return commits.made(task, changes.counts).by("arrow", reason)


def of_one_schema(changes: TableRange) -> TableRange:
    """Return a range; raises `Unsupported` if its rows have several schema versions."""
    if changes.older:
        raise Unsupported("its changes have several schema versions")
    return changes


def _why_here(spark: SparkOnDemand, task: TableTask, counts: ChangeCounts) -> str:
    """Return why this process writes a range; raises `Unsupported` if it has so many rows that Spark, if here, writes it."""
    spark_rows = task.settings.spark_rows
    rows, many = f"{counts.rows:,} rows", f"`compaction.spark_rows`, {spark_rows:,}"
    if counts.inserts_only:
        return f"{rows}, all of them inserts"
    if counts.rows < spark_rows:
        return f"{rows}, less than {many}"
    try:
        spark.get()
    except (NoSparkError, TableHeldError) as error:
        return f"{rows}, and Spark can't write them: {error.reason}"
    raise Unsupported(f"{rows}, no less than {many}")


@dataclass(frozen=True, slots=True)
class RangePart:
    """The part of a range that one of a table's two Delta tables gets: files as they are, and rows in new files."""

    links: Sequence[Link]
    rows: Iterator[pa.Table]


NOTHING = RangePart((), iter(()))


def _prepare_range(task: TableTask, before: CutTable, changes: TableRange) -> TableCommits:
    """Add the range up and place its files; nothing is committed yet.

    Raises `Unsupported` if Spark should write the range, LakeError about a damaged file, and DriftedError if the table does
    not have the rows that the changes presuppose.
    """
    refuse_unlinkable(task, changes.landed)
    base = LakeBase(task.path("current"), before.current_version)
    range_ = FoldedRange(task, fold_keys(changes.landed, changes.counts, base))
    # Current first: what the changes presuppose is checked before any file is placed.
    current = _prepare_current(range_)
    with current.or_discarded():
        request = layer_request(task, "history", [range_.part("history")], None)
        # Added up first: what can't be read leaves no file of history either.
        total = before.history_sum.plus(range_.fold.sum())
        return TableCommits(prepare_links(request, current), total, current)


def refuse_unlinkable(task: TableTask, landed: LandedRange, entry: SnapshotEntry | None = None) -> None:
    """Raise `Unsupported` if this process does not write tables with this schema, or not so many rows of one."""
    schema = landed.schema
    copied = () if entry is None else entry.table.chunks
    decoded = [*(c.decoded for c in copied), *(p.file.decoded for p in landed.slices)]
    if task.settings.spark_alone:
        raise Unsupported("the configuration asks for Spark")
    if any(column.attnum <= 0 for column in schema.columns):
        raise Unsupported("the catalog did not know a column of it")
    if keeps_key(schema) and sum(each.bytes for each in decoded) > COMPUTED_BYTES_MAX:
        raise Unsupported(
            f"a key is computed for each of its rows, which take more than {COMPUTED_BYTES_MAX >> 20} MiB"
        )


def layer_request(
    task: TableTask, layer: Layer, parts: Sequence[RangePart], removed: Removed[pa.Table] | AllRows | None
) -> LinkRequest:
    """Return the commit of parts to one of a table's two Delta tables, which is created if the lake does not have it."""
    schema, spec = task.schema, task.spec(layer)
    return LinkRequest(
        task.path(layer),
        task.commit_info(layer),
        [link for part in parts for link in part.links],
        _required(schema, layer),
        task.version_before(layer),
        spec.statistics,
        removed,
        NewTable(lake_types(schema, layer_columns(schema, layer)), spec) if task.before is None else None,
        chain.from_iterable(part.rows for part in parts),
    )


def _required(schema: SchemaVersion, layer: Layer) -> Mapping[str, str]:
    """Return the columns that each file must have which is linked into a layer, with their names there."""
    if layer == "history":
        return names_in_files(schema, [*column_names(schema), *_REQUIRED_IN_HISTORY])
    return names_in_files(schema, [name for name in current_columns(schema) if name not in _NOT_IN_FILES])


def _prepare_current(range_: FoldedRange) -> RowCommit:
    removed = range_.fold.removed
    request = layer_request(range_.task, "current", [range_.part("current")], removed)
    try:
        return prepare_links(request)
    except DriftedError:
        if range_.task.sends_everything:
            raise
        # No row has been read yet.
        return prepare_links(replace(request, removed=unchecked(removed)))


@dataclass(frozen=True, slots=True)
class FoldedRange:
    """A table's range, added up, and what its two Delta tables get of it."""

    task: TableTask
    fold: KeyFold

    def alive(self) -> Iterator[pa.Table]:
        """Give the rows that are alive at the range's end, as current has them."""
        return self.fold.current([(file, file.alive) for file in self.fold.files if file.alive.any()])

    def part(self, layer: Layer) -> RangePart:
        """Return every row of the range for history, for current those that are alive at its end.

        Raises `Unsupported` if a row that is to be written anew is too large for that.
        """
        is_history, links, others = layer == "history", list[Link](), list[tuple[FoldedFile, Mask]]()
        masks = [(file, file.in_range if is_history else file.alive) for file in self.fold.files]
        # The table's log is read for it: small files ask for nothing.
        may_link = any(self._is_linked(file, rest & ~file.holes) for file, rest in masks) and self._may_link(layer)
        for file, rest in masks:
            whole = rest & ~file.holes
            if may_link and self._is_linked(file, whole):
                left_out = None if whole.all() else np.flatnonzero(~whole).astype(np.int64)
                links.append(Link(landed_file(file.piece.url, file.piece.file), left_out))
                rest = rest & file.holes  # noqa: PLW2901  what is left of it
            if rest.any():
                others.append((file, rest))
        if any(file.piece.file.decoded.row > ROW_GROUP_BYTES for file, _ in others):
            raise Unsupported(f"a row has more than {ROW_GROUP_BYTES >> 20} MiB, and its file is not linked")
        rows = self.fold.history(others) if is_history else self.fold.current(others)
        return RangePart(links, rows)

    def _may_link(self, layer: Layer) -> bool:
        """True if landed files can be files of the table as it is."""
        task = self.task
        if keeps_key(task.schema):
            return False
        required = _required(task.schema, layer)
        return task.before is None or links_fit(task.path(layer), task.version_before(layer), required)

    def _is_linked(self, file: FoldedFile, mask: Mask) -> bool:
        """True if the file is linked, with a vector over the rows outside the mask."""
        piece = file.piece
        is_same = self.fold.landed.first_ordinals[piece.number] == piece.first_ordinal
        if piece.file.bytes < LINK_BYTES_MIN or not is_same:
            return False
        return bool(mask.all()) if self.task.portable else 2 * int(mask.sum()) >= len(mask)


def entry_range(task: TableTask, entry: SnapshotEntry) -> TableRange:
    """Return the changes since a snapshot; raises `Unsupported` if manifests say that Spark has to write the entry."""
    changes = of_one_schema(task.since_snapshot(entry))
    refuse_unlinkable(task, changes.landed, entry)
    return changes


def write_entry(task: TableTask, entry: SnapshotEntry) -> TableResult:
    """Write a table's first rows in this process; raises as `Entry.of`, and as its methods, before any commit."""
    entering = Entry.of(task, entry)
    return entering.prepared().made(task, entering.counts).entered().by("arrow", "a first copy")


def _check_unique(schema: SchemaVersion, base: ChunkBase) -> None:
    """Raise TableHeldError if a configured key is not unique in the snapshot's rows."""
    if schema.is_bag:
        return
    key = merge_key(schema)
    rows = (part for chunk in base.chunks for part in base.rows(chunk, key))
    too_large = f"a key that is configured takes more than {KEY_BYTES_MAX >> 20} MiB in its rows"
    parts = in_memory(rows, KEY_BYTES_MAX, too_large)
    if parts and codes(pa.concat_tables(parts), key)[1] < sum(part.num_rows for part in parts):
        raise TableHeldError(str(schema.table), HeldCause.KEY_NOT_UNIQUE, WayOut.OTHER_KEY_THEN_SNAPSHOT)


@dataclass(frozen=True, slots=True)
class Entry:
    """A table's entry: its snapshot's rows, and the changes since, counted and added up; None if there are none."""

    task: TableTask
    entry: SnapshotEntry
    base: ChunkBase | None
    counts: ChangeCounts
    changes: FoldedRange | None

    @classmethod
    def of(cls, task: TableTask, entry: SnapshotEntry) -> Entry:
        """Add up the changes since a snapshot.

        Raises `Unsupported` if Spark is to write the entry, LakeError about a damaged file, and TableHeldError if a
        configured key is not unique in the snapshot, or as `TableTask.checked`.
        """
        changes, base = task.checked(entry_range(task, entry)), None
        match entry.source:
            case Copy(folder) if entry.table.chunks:
                base = ChunkBase(task.lake.store, folder, task.schema, entry.table.chunks)
        if has_old_rows(task.schema) and base is not None:
            _check_unique(task.schema, base)
        since = None
        if changes.counts.rows:
            since = FoldedRange(task, fold_keys(changes.landed, changes.counts, base))
        return cls(task, entry, base, changes.counts, since)

    def rows(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Give these columns of the table's rows at the cycle's end, and maybe others.

        Raises DriftedError if the snapshot's rows are not those that the changes presuppose.
        """
        left_out = self._left_out()
        if self.base is not None and left_out is not None:
            for chunk in self.base.chunks:
                gone = left_out.get(chunk.number)
                kept = None if gone is None else np.setdiff1d(np.arange(chunk.rows), gone, assume_unique=True)
                yield from self.base.rows(chunk, columns, kept)
        if self.changes is not None:
            yield from self.changes.alive()

    def prepared(self) -> TableCommits:
        """Prepare both commits; nothing is committed yet."""
        # What can't be read, or is not what the changes presuppose, leaves no file of history.
        left_out, total = self._left_out(), self._sum()
        history = prepare_links(self._request("history", self._snapshot("history", {})))
        # On two file systems history's files may be copies.
        with history.or_discarded():
            snapshot = NOTHING if left_out is None else self._snapshot("current", left_out)
            current = prepare_links(self._request("current", snapshot), history)
            return TableCommits(history, total, current)

    def _request(self, layer: Layer, snapshot: RangePart) -> LinkRequest:
        """Return the commit of the snapshot's rows, and of what the changes bring."""
        part = NOTHING if self.changes is None else self.changes.part(layer)
        return layer_request(self.task, layer, [snapshot, part], None)

    def _sum(self) -> HistorySum:
        """Return the sum of history's rows: of the snapshot's its writer's, unless they get a computed key."""
        schema = self.task.schema
        if keeps_key(schema):
            total = sum_of(schema, self._snapshot("history", {}).rows)
        else:
            total = reduce(HistorySum.plus, (HistorySum(c.rows, c.sum) for c in self.entry.table.chunks), HistorySum())
        return total if self.changes is None else total.plus(self.changes.fold.sum())

    def _snapshot(self, layer: Layer, left_out: Mapping[int, Numbers]) -> RangePart:
        """Return the snapshot's rows, without those left out, by their chunk's number: links, or rows with keys."""
        base, schema = self.base, self.task.schema
        if base is None:
            return NOTHING
        left = {c: left_out.get(c.number) for c in base.chunks}
        kept = {c: rows for c, rows in left.items() if rows is None or len(rows) < c.rows}
        if not keeps_key(schema):
            links = [Link(landed_file(base.url(chunk), chunk), rows) for chunk, rows in kept.items()]
            return RangePart(links, iter(()))
        columns = in_landing(schema, layer_columns(schema, layer))
        names = [name for name in columns if name in _OF_CHUNKS or name in column_names(schema)]
        if any(chunk.decoded.row > ROW_GROUP_BYTES for chunk in kept):
            raise Unsupported(f"a row has more than {ROW_GROUP_BYTES >> 20} MiB, and gets a computed key")
        chosen = {c: None if gone is None else np.setdiff1d(np.arange(c.rows), gone) for c, gone in kept.items()}
        return RangePart((), (part for c, numbers in chosen.items() for part in base.rows(c, names, numbers)))

    def _left_out(self) -> dict[int, Numbers] | None:
        """Return the numbers of the rows that current does not get, by their chunk's number; None: it gets none of any.

        Raises DriftedError if the rows are not those that the changes presuppose.
        """
        if self.changes is None:
            return {}
        removed, thing = self.changes.fold.removed, str(self.task.table)
        left_out, met = dict[int, Numbers](), [np.empty(0, np.int64)]
        try:
            match removed:
                case AllRows(presupposed):
                    check_counts(thing, presupposed)
                case Removed(_, sought):
                    for chunk, numbers, keys in () if self.base is None else self.base.places(sought):
                        left_out[chunk.number] = np.sort(numbers)
                        met.append(keys)
                    check_keys(thing, removed, np.concatenate(met))
        except DriftedError:
            if self.task.sends_everything:
                raise
        return None if isinstance(removed, AllRows) else left_out
