"""A table's first entry, without Spark: its snapshot's files become files of history and of current, and no row is read.

Changes since the snapshot are a range like any other (`linked_range`), on top of the snapshot's rows. What Spark writes
instead does not belong here (`table`).

    history   all rows of all chunks, and the changes since the snapshot
    current   the same, without the rows whose keys the changes touch (a vector), and the rows that are alive

A table that was created in the stream has no snapshot, and begins with its changes. Cost: for each layer one pass over the
files' bytes, and for current, if there are changes since the snapshot, one scan of the snapshot's key columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa

from lakeproof.change_counts import ChangeCounts
from lakeproof.hidden_columns import FROM
from lakeproof.lake.columns import (
    column_names,
    current_columns,
    current_statistics,
    has_old_rows,
    history_columns,
    history_statistics,
    in_lake,
    lake_types,
)
from lakeproof.lake.cycle.lake_base import ChunkBase
from lakeproof.lake.cycle.linked_range import (
    REQUIRED_IN_HISTORY,
    FoldedRange,
    LinkedHistory,
    LinkedRange,
    Part,
    fold_range,
    in_files,
    refuse_unlinkable,
)
from lakeproof.lake.cycle.task import CycleContext, SnapshotEntry, TableTask
from lakeproof.lake.delta.commit import Unsupported
from lakeproof.lake.delta.link_commit import Link, LinkRequest, NewTable, prepare_links
from lakeproof.lake.delta.links import landed_file
from lakeproof.lake.delta.log import NO_VERSION
from lakeproof.lake.delta.search import Rows
from lakeproof.lake.planning.landed_range import LandedRange
from lakeproof.lake.records.history_sum import HistorySum
from lakeproof.lake.rows.key_preconditions import DriftedError, check_counts, check_firsts
from lakeproof.lake.rows.keys_in_memory import FIRST
from lakeproof.landing.catalog_history import sends_everything

_NOTHING = Part((), iter(()), 0)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A table's entry: its snapshot, and the changes since, added up; None if there are none."""

    context: CycleContext
    task: TableTask
    entry: SnapshotEntry
    changes: FoldedRange | None

    @property
    def base(self) -> ChunkBase | None:
        """The snapshot's rows; None if it has none."""
        return chunk_base(self.context, self.entry)


def chunk_base(context: CycleContext, entry: SnapshotEntry) -> ChunkBase | None:
    """Return a snapshot's rows; None if it has none."""
    if entry.key is None or not entry.table.chunks:
        return None
    return ChunkBase(context.lease.lake.store, entry.key, in_lake(entry.table.version), entry.table.chunks)


def prepare_linked_entry(
    context: CycleContext, task: TableTask, entry: SnapshotEntry, landed: LandedRange, counts: ChangeCounts
) -> LinkedRange:
    """Prepare both commits of an entry with the changes since its snapshot, `landed`; nothing is committed yet.

    Raises `Unsupported` if Spark should write it, LakeError about a damaged file, and DriftedError if the snapshot does not
    have the rows that the changes presuppose.
    """
    refuse_unlinkable(context, landed.schema)
    if has_old_rows(landed.schema):
        raise Unsupported("a key that is configured is checked in all rows")
    if task.before is not None:
        raise Unsupported("the table has been in the lake before")
    changes = None
    if counts.rows:
        fold = fold_range(landed, counts, chunk_base(context, entry))
        changes = FoldedRange(context, task, landed, fold)
    one = _Entry(context, task, entry, changes)
    left_out = _left_out(one)
    history = _prepare_history(one, landed)
    try:
        return LinkedRange(history, prepare_links(_current(one, landed, left_out)))
    except BaseException:
        # On a full disk: on two file systems history's files may be copies.
        history.prepared.discard()
        raise


def _prepare_history(one: _Entry, landed: LandedRange) -> LinkedHistory:
    schema, lake, task = landed.schema, one.context.lease.lake, one.task
    columns, statistics = history_columns(schema), history_statistics(schema)
    part = _NOTHING if one.changes is None else one.changes.history(may_link=True)
    request = LinkRequest(
        lake.url(lake.paths.history(task.table)),
        one.context.commit_info("history", task.table),
        [*(Link(landed_file(lake.url(f"{one.entry.key}/{c.path}"), c)) for c in one.entry.table.chunks), *part.links],
        in_files(schema, [*column_names(schema), *REQUIRED_IN_HISTORY]),
        NO_VERSION,
        statistics,
        create=NewTable(lake_types(schema, columns), one.context.table_spec(task.table, statistics)),
        rows=part.rows,
        row_count=part.count,
    )
    total = reduce(HistorySum.plus, (HistorySum(c.rows, c.sum) for c in one.entry.table.chunks), HistorySum())
    return LinkedHistory(prepare_links(request), total if one.changes is None else total.plus(one.changes.sum()))


def _current(one: _Entry, landed: LandedRange, left_out: dict[int, Rows] | None) -> LinkRequest:
    """Return current's commit; `left_out` as `_left_out` gives it."""
    schema, lake, task = landed.schema, one.context.lease.lake, one.task
    columns, statistics = current_columns(schema), current_statistics(schema)
    part = _NOTHING if one.changes is None else one.changes.current(may_link=True)
    links: list[Link] = []
    for chunk in one.entry.table.chunks if left_out is not None else ():
        rows = (left_out or {}).get(chunk.number)
        if rows is None or len(rows) < chunk.rows:
            links.append(Link(landed_file(lake.url(f"{one.entry.key}/{chunk.path}"), chunk), rows))
    return LinkRequest(
        lake.url(lake.paths.current(task.table)),
        one.context.commit_info("current", task.table),
        [*links, *part.links],
        in_files(schema, [name for name in columns if name != FROM]),
        NO_VERSION,
        statistics,
        create=NewTable(lake_types(schema, columns), one.context.table_spec(task.table, statistics)),
        rows=part.rows,
        row_count=part.count,
    )


def _left_out(one: _Entry) -> dict[int, Rows] | None:
    """Return the numbers of the rows that current does not get, by the number of their chunk; None: it gets none of any.

    Raises DriftedError if the rows are not those that the changes presuppose.
    """
    if one.changes is None:
        return {}
    fold, base, thing = one.changes.fold, one.base, str(one.task.table)
    left_out: dict[int, Rows] = {}
    firsts = list[pa.ChunkedArray]()
    if base is not None and fold.keys is not None and not fold.truncate:
        for chunk, numbers, keys in base.places(fold.keys):
            left_out[chunk.number] = np.sort(numbers)
            firsts.append(fold.keys.column(FIRST).take(pa.array(keys)))
    try:
        if fold.preconditions is not None:
            _check(thing, firsts, fold.preconditions)
    except DriftedError:
        if sends_everything(one.context.chain, one.task.version.oid):
            raise
    return None if fold.truncate else left_out


def _check(thing: str, firsts: Sequence[pa.ChunkedArray], preconditions: int) -> None:
    if firsts:
        check_firsts(thing, pa.chunked_array([c for first in firsts for c in first.chunks], pa.int64()), preconditions)
    else:
        check_counts(thing, preconditions)
