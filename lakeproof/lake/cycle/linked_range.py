"""A range written by this process, without Spark: landed files linked into history and current, and other rows in new files.

Choosing the range belongs to `lakeproof.lake.planning`, adding it up to `lakeproof.lake.fold.key_fold`; a range that is
`Unsupported` here is written by Spark, as `table` says.

    history   each file of at least `LINK_BYTES_MIN`, with a vector over the rows outside the range; the others' rows are
              read, and written together
    current   each such file at least half of whose rows are alive, with a vector over the others; the others' rows likewise,
              and a vector in current's own files over every row whose key is touched; after a TRUNCATE all of them go

A row that lacks a value which its update left out is never linked: it is written anew, with its holder's name in history,
and with the value in current (`lakeproof.lake.fold.unchanged_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.change_counts import ChangeCounts
from lakeproof.errors import InvariantError
from lakeproof.failpoints import failpoint
from lakeproof.hidden_columns import FROM, KEY, LSN, OP, ORD, TEXT
from lakeproof.lake.columns import (
    column_names,
    current_columns,
    current_statistics,
    has_old_rows,
    history_columns,
    history_statistics,
    keeps_key,
    merge_key,
)
from lakeproof.lake.cycle.lake_base import LakeBase
from lakeproof.lake.cycle.task import CycleContext, TableTask
from lakeproof.lake.delta.commit import Engine, Unsupported
from lakeproof.lake.delta.link_commit import Link, LinkRequest, PreparedLinks, Removal, links_fit, prepare_links
from lakeproof.lake.delta.links import landed_file
from lakeproof.lake.delta.search import Rows
from lakeproof.lake.fold.holders import Base, NotFolded
from lakeproof.lake.fold.key_fold import FoldedFile, KeyFold, Mask, fold_keys
from lakeproof.lake.fold.unchanged_rows import Unchanged, values_of
from lakeproof.lake.planning.landed_range import LandedRange
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.records.history_sum import HistorySum
from lakeproof.lake.rows.key_preconditions import DriftedError
from lakeproof.landing.catalog_history import sends_everything
from lakeproof.landing.file_columns import file_names
from lakeproof.landing.segment import ROW_GROUP_BYTES
from lakeproof.schema import SchemaVersion

# A file of less is read as quickly as it is linked, and small files make each later scan slower.
LINK_BYTES_MIN = 1 << 20
# So many rows are read at a time.
_ROWS_AT_ONCE = 1 << 14
# What each file that is linked into history has beside the table's own columns.
REQUIRED_IN_HISTORY = (TEXT, ORD, LSN, OP)


@dataclass(frozen=True, slots=True)
class LinkedHistory:
    """History's commit, prepared; `total` is history's sum after it."""

    prepared: PreparedLinks
    total: HistorySum

    def commit(self, context: CycleContext) -> tuple[int, HistorySum]:
        """Make the commit; return history's version and the sum of its rows."""
        context.lease.check()
        applied = self.prepared.commit()
        failpoint("cycle.after_history")
        return applied.version, self.total


@dataclass(frozen=True, slots=True)
class LinkedRange:
    """Both commits of a range, prepared."""

    history: LinkedHistory
    current: PreparedLinks


@dataclass(frozen=True, slots=True)
class Part:
    """What one of a table's two Delta tables gets of a range: files as they are, and `count` rows in new files."""

    links: Sequence[Link]
    rows: Iterator[pa.Table]
    count: int


def prepare_linked_range(
    context: CycleContext, task: TableTask, landed: LandedRange, counts: ChangeCounts
) -> LinkedRange:
    """Add the range up and place its files; nothing is committed yet.

    Raises `Unsupported` if Spark should write the range, LakeError about a damaged file, and DriftedError if the table does
    not have the rows that the changes presuppose.
    """
    schema, before, lake = landed.schema, task.before, context.lease.lake
    refuse_unlinkable(context, schema)
    if before is None:
        raise InvariantError(str(task.table), "has changes but is not in the lake", "report this")
    current, history = lake.url(lake.paths.current(task.table)), lake.url(lake.paths.history(task.table))
    fold = fold_range(landed, counts, LakeBase(current, before.current_version, schema))
    range_ = FoldedRange(context, task, landed, fold)
    # Current first: what the changes presuppose is checked before any file is placed.
    prepared = _prepare_current(range_, current, before)
    try:
        return LinkedRange(_prepare_history(range_, history, before), prepared)
    except BaseException:
        # New files have other names in each attempt: on a full disk, each would leave its own.
        prepared.discard()
        raise


def refuse_unlinkable(context: CycleContext, schema: SchemaVersion) -> None:
    """Raise `Unsupported` if this process does not write tables with this schema."""
    if context.engine is Engine.SPARK:
        raise Unsupported("the configuration asks for Spark")
    if keeps_key(schema):
        raise Unsupported("the table has no key that is compared exactly, so its rows have a computed one")
    if any(column.attnum <= 0 for column in schema.columns):
        raise Unsupported("the catalog did not know a column of it")


def fold_range(landed: LandedRange, counts: ChangeCounts, base: Base | None) -> KeyFold:
    """Add a range up on top of the table before it; raises `Unsupported`."""
    if has_old_rows(landed.schema):
        raise Unsupported("an update or delete brings the whole old row")
    if any(piece.file.refused for piece in landed.slices):
        raise Unsupported("a row has a text that is refused")
    try:
        return fold_keys(landed, counts, base)
    except NotFolded as error:
        raise Unsupported(str(error)) from None


def _prepare_history(range_: FoldedRange, path: str, before: CutTable) -> LinkedHistory:
    schema, task = range_.landed.schema, range_.task
    required = in_files(schema, [*column_names(schema), *REQUIRED_IN_HISTORY])
    part = range_.history(may_link=links_fit(path, before.history_version, required))
    request = LinkRequest(
        path,
        range_.context.commit_info("history", task.table),
        part.links,
        required,
        before.history_version,
        history_statistics(schema),
        rows=part.rows,
        row_count=part.count,
    )
    return LinkedHistory(prepare_links(request), before.history_sum.plus(range_.sum()))


def _prepare_current(range_: FoldedRange, path: str, before: CutTable) -> PreparedLinks:
    schema, task, fold = range_.landed.schema, range_.task, range_.fold
    required = in_files(schema, [n for n in current_columns(schema) if n != FROM])
    part = range_.current(may_link=links_fit(path, before.current_version, required))
    removal = Removal(merge_key(schema), fold.keys, fold.truncate, fold.preconditions)
    request = LinkRequest(
        path,
        range_.context.commit_info("current", task.table),
        part.links,
        required,
        before.current_version,
        current_statistics(schema),
        removal,
        rows=part.rows,
        row_count=part.count,
    )
    try:
        return prepare_links(request)
    except DriftedError:
        if sends_everything(range_.context.chain, task.version.oid):
            raise
        # No row has been read yet.
        return prepare_links(replace(request, removal=replace(removal, preconditions=None)))


@dataclass(frozen=True, slots=True)
class FoldedRange:
    """A table's range, added up, and what its two Delta tables get of it."""

    context: CycleContext
    task: TableTask
    landed: LandedRange
    fold: KeyFold

    def history(self, *, may_link: bool) -> Part:
        """Return every row of the range."""
        linked, others = self._parted([file.in_range for file in self.fold.files], may_link=may_link)
        columns, holders = history_columns(self.landed.schema), self.fold.holders
        unchanged = None if holders is None else Unchanged(self.landed.schema, holders, pa.table({}), {})
        rows = (
            unchanged.marked(part, numbers) if unchanged is not None else part
            for file, mask in others
            for part, numbers in self._rows(file, mask, _existing(columns))
        )
        return Part([_link(file, mask) for file, mask in linked], rows, sum(int(mask.sum()) for _, mask in others))

    def current(self, *, may_link: bool) -> Part:
        """Return the rows that are alive at the range's end."""
        linked, others = self._parted([file.alive for file in self.fold.files], may_link=may_link)
        count = sum(int(mask.sum()) for _, mask in others)
        return Part([_link(file, mask) for file, mask in linked], self._current_rows(others), count)

    def sum(self) -> HistorySum:
        """Return the sum of the rows that history gets."""
        return reduce(HistorySum.plus, map(self._sum, self.fold.files), HistorySum())

    def _current_rows(self, others: Sequence[tuple[FoldedFile, Mask]]) -> Iterator[pa.Table]:
        schema, holders = self.landed.schema, self.fold.holders
        columns = _existing(current_columns(schema))
        unchanged = None
        if holders is not None:
            try:
                unchanged = values_of(schema, holders, self.fold.files, self._values)
            except NotFolded as error:
                raise Unsupported(str(error)) from None
        for file, mask in others:
            for part, numbers in self._rows(file, mask, columns):
                yield part if unchanged is None else unchanged.completed(part, numbers)

    def _values(self, file: FoldedFile, mask: Mask, names: Sequence[str]) -> Iterator[pa.Table]:
        return (part for part, _ in self._rows(file, mask, names))

    def _parted(
        self, masks: Sequence[Mask], *, may_link: bool
    ) -> tuple[list[tuple[FoldedFile, Mask]], list[tuple[FoldedFile, Mask]]]:
        """Return the files that are linked with the rows that they bring, and those whose rows are written anew.

        Raises `Unsupported` if one of these has a row that is too large for that.
        """
        linked, others = list[tuple[FoldedFile, Mask]](), list[tuple[FoldedFile, Mask]]()
        for file, mask in zip(self.fold.files, masks, strict=True):
            whole = mask & ~file.holes
            is_linked = may_link and self._is_linked(file, whole)
            rest = mask & file.holes if is_linked else mask
            if is_linked:
                linked.append((file, whole))
            if rest.any():
                others.append((file, rest))
        if any(file.piece.file.decoded.row > ROW_GROUP_BYTES for file, _ in others):
            raise Unsupported(f"a row has more than {ROW_GROUP_BYTES >> 20} MiB, and its file is not linked")
        return linked, others

    def _is_linked(self, file: FoldedFile, mask: Mask) -> bool:
        """True if the file is linked, with a vector over the rows outside the mask."""
        piece, has_vectors = file.piece, self.task.table not in self.context.portable
        is_same = self.landed.first_ordinals[piece.number] == piece.first_ordinal
        is_worth_it = piece.file.bytes >= LINK_BYTES_MIN and is_same
        return is_worth_it and (_is_most(mask) if has_vectors else bool(mask.all()))

    def _rows(self, file: FoldedFile, mask: Mask, columns: Sequence[str]) -> Iterator[tuple[pa.Table, Sequence[int]]]:
        """Give the rows of the file that the mask has, with some of the lake's columns, and their numbers.

        `_lp_ord` is the cycle's.

        The numbers are nothing unless some row of the range lacks a value.
        """
        place = 0
        in_file = in_files(self.landed.schema, columns)
        moved = pa.scalar(self._moved(file), pa.int64())
        with file.piece.open() as opened:
            at_once = max(1, min(_ROWS_AT_ONCE, ROW_GROUP_BYTES // max(1, file.piece.file.decoded.row)))
            for batch in opened.iter_batches(at_once, columns=list(in_file.values())):
                chosen = mask[place : place + batch.num_rows]
                numbers: Sequence[int] = ()
                if file.numbers is not None:
                    numbers = file.numbers[place : place + batch.num_rows][chosen].tolist()
                place += batch.num_rows
                if not chosen.any():
                    continue
                rows = batch if chosen.all() else batch.filter(pa.array(chosen))
                values = {name: rows.column(own) for name, own in in_file.items()}
                values |= {ORD: pc.add(values[ORD], moved)} if ORD in values else {}
                values |= {OP: values[OP].cast(pa.string())} if OP in values else {}
                yield pa.table(values), numbers

    def _moved(self, file: FoldedFile) -> int:
        """Return by how much the cycle's ordinals of the file's rows differ from those that it holds."""
        return self.landed.first_ordinals[file.piece.number] - file.piece.first_ordinal

    def _sum(self, file: FoldedFile) -> HistorySum:
        """Return the sum of the file's rows in the range: its writer's, less the rows outside, unless these are many."""
        whole = HistorySum(file.piece.file.rows, file.piece.file.sum)
        if self._moved(file) or file.holes.any() or not _is_most(file.in_range):
            return self._sum_of(file, file.in_range)
        return whole if file.in_range.all() else whole.minus(self._sum_of(file, ~file.in_range))

    def _sum_of(self, file: FoldedFile, mask: Mask) -> HistorySum:
        """Return the sum of the file's rows that the mask has; they are read for it."""
        if not mask.any():
            # A segment in which the range ends has files none of whose rows are in it.
            return HistorySum()
        # Imported here because it imports the compiler, which few cycles need.
        from lakeproof.landing.row_sums import RowSum

        schema, holders = self.landed.schema, self.fold.holders
        unchanged = None if holders is None else Unchanged(schema, holders, pa.table({}), {})
        sums = RowSum({column.name: column.attnum for column in schema.columns})
        for part, numbers in self._rows(file, mask, _existing(history_columns(schema))):
            sums.add(part if unchanged is None else unchanged.marked(part, numbers))
        return HistorySum(sums.rows, sums.total)


def in_files(schema: SchemaVersion, columns: Sequence[str]) -> dict[str, str]:
    """Return columns of the lake with their names in landed files."""
    own: Mapping[str, str] = dict(zip(column_names(schema), file_names(schema), strict=True))
    return {name: own.get(name, name) for name in columns}


def _existing(columns: Sequence[str]) -> list[str]:
    """Return the columns that a landed file has; the others are NULL."""
    return [name for name in columns if name not in {KEY, FROM}]


def _link(file: FoldedFile, mask: Mask) -> Link:
    return Link(landed_file(file.piece.url, file.piece.file), _numbers(~mask))


def _is_most(mask: Mask) -> bool:
    return 2 * int(mask.sum()) >= len(mask)


def _numbers(mask: Mask) -> Rows | None:
    """Return the numbers of the rows that the mask has, None if there are none."""
    return np.flatnonzero(mask).astype(np.int64) if mask.any() else None
