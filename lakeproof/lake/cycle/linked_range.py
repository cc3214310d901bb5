"""A range written without a Spark job: landed files linked into history and current, and other rows in new files.

Choosing the range belongs to `lakeproof.lake.planning`, adding it up to `lakeproof.lake.fold.key_fold`; a range that is
`Unsupported` here is written by Spark, as `table` says.

    history   each file of at least `LINK_BYTES_MIN`, with a vector over the rows outside the range; the others' rows are
              read, and written together
    current   each such file at least half of whose rows are alive, with a vector over the others; the others' rows likewise,
              and a vector in current's own files over every row whose key is touched: the one job, if a file may have one

One row that waits for an unchanged TOAST value, or is refused, and one TRUNCATE, leave the whole range to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from lakeproof.change_counts import ChangeCounts
from lakeproof.errors import InvariantError
from lakeproof.hidden_columns import FROM, KEY, OP, ORD
from lakeproof.lake.columns import (
    column_names,
    current_columns,
    current_statistics,
    has_old_rows,
    history_columns,
    history_statistics,
    keeps_key,
    lake_types,
    merge_key,
)
from lakeproof.lake.cycle.history_commit import REQUIRED_IN_HISTORY, LinkedHistory
from lakeproof.lake.cycle.task import CycleContext, TableTask
from lakeproof.lake.delta.commit import WriteStrategy
from lakeproof.lake.delta.link_commit import Link, LinkRequest, PreparedLinks, prepare_links
from lakeproof.lake.delta.links import landed_file
from lakeproof.lake.delta.vectors import Rows, Unsupported
from lakeproof.lake.fold.key_fold import FoldedFile, KeyFold, Mask, NotFolded, fold_keys
from lakeproof.lake.planning.landed_range import LandedRange
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.records.history_sum import HistorySum
from lakeproof.lake.rows.change import HeldKeys, NetChange
from lakeproof.lake.rows.keys_in_memory import FIRST
from lakeproof.lake.rows.preconditions import DriftedError
from lakeproof.landing.catalog_history import sends_everything
from lakeproof.landing.file_columns import file_names
from lakeproof.landing.reader import Slice
from lakeproof.landing.segment import ROW_GROUP_BYTES
from lakeproof.schema import SchemaVersion

# A file of less is read as quickly as it is linked, and small files make each later scan slower.
LINK_BYTES_MIN = 1 << 20
# So many rows are read at a time.
_ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True, slots=True)
class LinkedRange:
    """Both commits of a range, prepared."""

    history: LinkedHistory
    current: PreparedLinks


def prepare_linked_range(
    session: SparkSession, context: CycleContext, task: TableTask, landed: LandedRange, counts: ChangeCounts
) -> LinkedRange:
    """Add the range up and place its files; nothing is committed yet.

    Raises `Unsupported` if Spark should write the range, LakeError about a damaged file, and DriftedError if the table does
    not have the rows that the changes presuppose.
    """
    schema, before = landed.schema, task.before
    refuse_unlinkable(context, schema)
    if before is None:
        raise InvariantError(str(task.table), "has changes but is not in the lake", "report this")
    if has_old_rows(schema):
        raise Unsupported("an update or delete brings the whole old row")
    if task.table in context.portable and not counts.inserts_only:
        raise Unsupported("the table is configured with `readers: portable`, and its changes delete rows")
    if counts.truncates or counts.unchanged:
        raise Unsupported("a change truncates the table, or lacks an unchanged value")
    if any(piece.file.refused for piece in landed.slices):
        raise Unsupported("a row has a text that is refused")
    try:
        fold = fold_keys(landed, inserts_only=counts.inserts_only)
    except NotFolded as error:
        raise Unsupported(str(error)) from None
    range_ = _Range(session, context, task, landed, fold)
    # Current first: what the changes presuppose is checked before any file is placed.
    current = range_.prepare_current(before)
    try:
        return LinkedRange(range_.prepare_history(before), current)
    except BaseException:
        # New files have other names in each attempt: on a full disk, each would leave its own.
        current.discard()
        raise


def refuse_unlinkable(context: CycleContext, schema: SchemaVersion) -> None:
    """Raise `Unsupported` if no file of a table with this schema can be linked."""
    if context.strategy is not WriteStrategy.AUTO:
        raise Unsupported("the configuration asks for MERGE")
    if keeps_key(schema):
        raise Unsupported("the table has no key that is compared exactly, so its rows have a computed one")
    if any(column.attnum <= 0 for column in schema.columns):
        raise Unsupported("the catalog did not know a column of it")


def _is_linkable(piece: Slice, landed: LandedRange) -> bool:
    """True if it is worth linking, and the cycle gives its rows the ordinals that it holds."""
    return piece.file.bytes >= LINK_BYTES_MIN and landed.first_ordinals[piece.number] == piece.first_ordinal


@dataclass(frozen=True, slots=True)
class _Range:
    session: SparkSession
    context: CycleContext
    task: TableTask
    landed: LandedRange
    fold: KeyFold

    def prepare_history(self, before: CutTable) -> LinkedHistory:
        schema, lake = self.landed.schema, self.context.lease.lake
        linked, others = self._linked_and_others(lambda file: file.in_range)
        columns = _in_files(history_columns(schema))
        request = LinkRequest(
            lake.url(lake.paths.history(self.task.table)),
            self.context.commit_info("history", self.task.table),
            [Link(landed_file(f.piece.url, f.piece.file), _numbers(~f.in_range)) for f in linked],
            required=(*column_names(schema), *REQUIRED_IN_HISTORY),
            expected_version=before.history_version,
            statistics=history_statistics(schema),
            rows=chain.from_iterable(self._rows(f, f.in_range, columns) for f in others),
            row_count=sum(int(f.in_range.sum()) for f in others),
        )
        total = reduce(HistorySum.plus, map(self._sum, self.fold.files), before.history_sum)
        return LinkedHistory(prepare_links(self.session, request), total, None)

    def prepare_current(self, before: CutTable) -> PreparedLinks:
        schema, lake = self.landed.schema, self.context.lease.lake
        linked, others = self._linked_and_others(lambda file: file.alive)
        columns, keys, key = _in_files(current_columns(schema)), self.fold.keys, merge_key(schema)
        held = None if keys is None else HeldKeys(keys, {**lake_types(schema, key), FIRST: "bigint"})
        request = LinkRequest(
            lake.url(lake.paths.current(self.task.table)),
            self.context.commit_info("current", self.task.table),
            [Link(landed_file(f.piece.url, f.piece.file), _numbers(~f.alive)) for f in linked],
            required=columns,
            expected_version=before.current_version,
            statistics=current_statistics(schema),
            change=NetChange(key, keys=held, preconditions=self.fold.preconditions),
            rows=chain.from_iterable(self._rows(f, f.alive, columns) for f in others),
            row_count=sum(int(f.alive.sum()) for f in others),
        )
        try:
            return prepare_links(self.session, request)
        except DriftedError:
            if sends_everything(self.context.chain, self.task.version.oid):
                raise
            unchecked = replace(request, change=replace(request.change, preconditions=None))
            return prepare_links(self.session, unchecked)

    def _linked_and_others(self, rows: Callable[[FoldedFile], Mask]) -> tuple[list[FoldedFile], list[FoldedFile]]:
        """Return the files that are linked, and those whose `rows` are written anew.

        Raises `Unsupported` if one of these has a row that is too large for that.
        """
        linked, others = list[FoldedFile](), list[FoldedFile]()
        for file in self.fold.files:
            mask = rows(file)
            if self._is_linked(file, mask):
                linked.append(file)
            elif mask.any():
                others.append(file)
        if any(f.piece.file.decoded.row > ROW_GROUP_BYTES for f in others):
            raise Unsupported(f"a row has more than {ROW_GROUP_BYTES >> 20} MiB, and its file is not linked")
        return linked, others

    def _is_linked(self, file: FoldedFile, mask: Mask) -> bool:
        """True if the file is linked, with a vector over the rows outside the mask."""
        has_vectors = self.task.table not in self.context.portable
        return _is_linkable(file.piece, self.landed) and (_is_most(mask) if has_vectors else bool(mask.all()))

    def _rows(self, file: FoldedFile, mask: Mask, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Give the file's rows that the mask has, with some of history's or current's columns, and the cycle's `_lp_ord`."""
        schema, place = self.landed.schema, 0
        in_file = dict(zip(column_names(schema), file_names(schema), strict=True))
        moved = pa.scalar(self._moved(file), pa.int64())
        with file.piece.open() as opened:
            at_once = max(1, min(_ROWS_AT_ONCE, ROW_GROUP_BYTES // max(1, file.piece.file.decoded.row)))
            for batch in opened.iter_batches(at_once, columns=[in_file.get(name, name) for name in columns]):
                rows = batch.filter(pa.array(mask[place : place + batch.num_rows]))
                place += batch.num_rows
                values = {name: rows.column(in_file.get(name, name)) for name in columns}
                values |= {ORD: pc.add(values[ORD], moved)} if ORD in values else {}
                values |= {OP: values[OP].cast(pa.string())} if OP in values else {}
                yield pa.table(values)

    def _moved(self, file: FoldedFile) -> int:
        """Return by how much the cycle's ordinals of the file's rows differ from those that it holds."""
        return self.landed.first_ordinals[file.piece.number] - file.piece.first_ordinal

    def _sum(self, file: FoldedFile) -> HistorySum:
        """Return the sum of the file's rows in the range: its writer's, less those outside, unless most are or it moved."""
        whole = HistorySum(file.piece.file.rows, file.piece.file.sum)
        if self._moved(file) or not _is_most(file.in_range):
            return self._sum_of(file, file.in_range)
        return whole if file.in_range.all() else whole.minus(self._sum_of(file, ~file.in_range))

    def _sum_of(self, file: FoldedFile, mask: Mask) -> HistorySum:
        """Return the sum of the file's rows that the mask has; they are read for it."""
        if not mask.any():
            # A segment in which the range ends has files none of whose rows are in it.
            return HistorySum()
        # Imported here because it imports the compiler, which few cycles need.
        from lakeproof.landing.row_sums import RowSum

        schema = self.landed.schema
        rows = RowSum({column.name: column.attnum for column in schema.columns})
        for part in self._rows(file, mask, _in_files(history_columns(schema))):
            rows.add(part)
        return HistorySum(rows.rows, rows.total)


def _in_files(columns: Sequence[str]) -> list[str]:
    """Return the columns that a landed file has; the others are NULL."""
    return [name for name in columns if name not in {KEY, FROM}]


def _is_most(mask: Mask) -> bool:
    return 2 * int(mask.sum()) >= len(mask)


def _numbers(mask: Mask) -> Rows | None:
    """Return the numbers of the rows that the mask has, None if there are none."""
    return np.flatnonzero(mask).astype(np.int64) if mask.any() else None
