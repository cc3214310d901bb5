"""A table's first entry by links: the files of its snapshot become files of history and of current, and no row is read.

Which rows a table gets is `table`'s, what Spark writes instead belongs to `history_commit` and `current_commit`.

    history   all rows of all chunks; the changes since the snapshot come beside them, in the same commit
    current   the same, without the rows whose keys the changes touch (a vector), and the changes' images

Each layer is linked or not on its own: `Unsupported` says why Spark writes one. Cost: for each layer one pass over the
files' bytes, and for current, if there are changes since the snapshot, one scan of the snapshot's key columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.hidden_columns import FROM, ORD
from lakeproof.lake.columns import (
    column_names,
    current_columns,
    current_statistics,
    history_columns,
    history_statistics,
    lake_types,
)
from lakeproof.lake.cycle.history_commit import REQUIRED_IN_HISTORY, LinkedHistory
from lakeproof.lake.cycle.linked_range import refuse_unlinkable
from lakeproof.lake.cycle.task import CycleContext, SnapshotEntry, TableTask
from lakeproof.lake.delta.link_commit import Link, LinkRequest, NewTable, PreparedLinks, prepare_links
from lakeproof.lake.delta.links import LandedFile, landed_file
from lakeproof.lake.delta.log import NO_VERSION
from lakeproof.lake.delta.vectors import KEYS_MAX, KEYS_TOO_LARGE, Rows, Unsupported, keys_fit
from lakeproof.lake.fold.history import few_files
from lakeproof.lake.records.history_sum import HistorySum
from lakeproof.lake.rows.change import NetChange
from lakeproof.lake.rows.columns import pick
from lakeproof.lake.rows.history_sum import Summing
from lakeproof.lake.rows.matching import join_on_key
from lakeproof.landing.row_order import CHUNK_BITS, chunk_ordinal
from lakeproof.schema import SchemaVersion


@dataclass(frozen=True, slots=True)
class EntryRows:
    """A table's first rows: its snapshot's (`snapshot` opens them as a frame), and beside them the changes since.

    `events` are history's rows of these changes, `net` their net change; None and empty if there are none. `changes` is
    their number at most.
    """

    schema: SchemaVersion
    snapshot: Callable[[], DataFrame]
    events: DataFrame | None
    net: NetChange
    changes: int


@dataclass(frozen=True, slots=True)
class LinkedEntry:
    """The commits of an entry that are made by links; None for a layer that Spark writes, for the `reason`."""

    history: LinkedHistory | None
    current: PreparedLinks | None
    reason: str | None

    @classmethod
    def of(
        cls, session: SparkSession, context: CycleContext, task: TableTask, entry: SnapshotEntry, rows: EntryRows
    ) -> LinkedEntry:
        """Prepare both layers, each by links if it can be; raises LakeError about a damaged file."""
        try:
            refuse_unlinkable(context, rows.schema)
            _refuse_unlinkable_entry(task, entry)
            history = _prepare_history(session, context, task, entry, rows)
        except Unsupported as error:
            return cls(None, None, str(error))
        try:
            return cls(history, _prepare_current(session, context, task, entry, rows), None)
        except Unsupported as error:
            return cls(history, None, f"current: {error}")
        except BaseException:
            # On a full disk: on two file systems history's files may be copies.
            history.prepared.discard()
            raise


def _prepare_history(
    session: SparkSession, context: CycleContext, task: TableTask, entry: SnapshotEntry, rows: EntryRows
) -> LinkedHistory:
    schema, lake = rows.schema, context.lease.lake
    columns, statistics = history_columns(schema), history_statistics(schema)
    beside = None if rows.events is None else Summing(schema, rows.events)
    request = LinkRequest(
        lake.url(lake.paths.history(task.table)),
        context.commit_info("history", task.table),
        [Link(landed) for landed in _landed_files(context, entry)],
        required=(*column_names(schema), *REQUIRED_IN_HISTORY),
        expected_version=NO_VERSION,
        statistics=statistics,
        change=NetChange(images=None if beside is None else few_files(pick(beside.rows, columns), rows.changes)),
        create=NewTable(lake_types(schema, columns), context.table_spec(task.table, statistics)),
    )
    chunks = reduce(HistorySum.plus, (HistorySum(c.rows, c.sum) for c in entry.table.chunks), HistorySum())
    return LinkedHistory(prepare_links(session, request), chunks, beside)


def _prepare_current(
    session: SparkSession, context: CycleContext, task: TableTask, entry: SnapshotEntry, rows: EntryRows
) -> PreparedLinks:
    schema, net, lake = rows.schema, rows.net, context.lease.lake
    if net.truncate:
        raise Unsupported("the table was truncated after its snapshot")
    columns, statistics = current_columns(schema), current_statistics(schema)
    left_out = _left_out(rows)
    chunks = zip(entry.table.chunks, _landed_files(context, entry), strict=True)
    links = [Link(landed, left_out.get(chunk.number)) for chunk, landed in chunks]
    request = LinkRequest(
        lake.url(lake.paths.current(task.table)),
        context.commit_info("current", task.table),
        [link for link in links if link.rows > 0],
        required=[name for name in columns if name != FROM],
        expected_version=NO_VERSION,
        statistics=statistics,
        change=NetChange(images=None if net.images is None else few_files(pick(net.images, columns), rows.changes)),
        create=NewTable(lake_types(schema, columns), context.table_spec(task.table, statistics)),
    )
    return prepare_links(session, request)


def _refuse_unlinkable_entry(task: TableTask, entry: SnapshotEntry) -> None:
    if task.before is not None:
        raise Unsupported("the table has been in the lake before")
    if not entry.table.chunks:
        raise Unsupported("the snapshot has no files")


def _landed_files(context: CycleContext, entry: SnapshotEntry) -> list[LandedFile]:
    lake = context.lease.lake
    return [landed_file(lake.url(f"{entry.key}/{chunk.path}"), chunk) for chunk in entry.table.chunks]


def _left_out(rows: EntryRows) -> dict[int, Rows]:
    """Return the numbers of the rows that the net change deletes, by the number of their chunk; one job."""
    net = rows.net
    if net.deletes is None:
        return {}
    if rows.changes > KEYS_MAX:
        raise Unsupported(f"more than {KEYS_MAX:,} changes came after the snapshot")
    if not keys_fit(net.key, net.deletes):
        raise Unsupported(KEYS_TOO_LARGE)
    keys = F.broadcast(pick(net.deletes, net.key))
    kept = pick(rows.snapshot(), [*net.key, ORD])
    hit = join_on_key(kept, keys, net.key, "left_semi", null_safe=net.null_safe).select(ORD).toArrow()
    ordinals = np.sort(hit.column(ORD).to_numpy()) - chunk_ordinal(0)
    numbers = ordinals >> CHUNK_BITS
    return {int(n): ordinals[numbers == n] - (n << CHUNK_BITS) for n in np.unique(numbers)}
