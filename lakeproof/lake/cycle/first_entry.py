"""A table's first entry, without Spark: its snapshot's files become files of history and of current.

Changes since the snapshot are a range like any other (`table`), on top of the snapshot's rows. Entries by Spark are in
`table_by_spark`.

    history   all rows of all chunks, and the changes since the snapshot
    current   the same, without the rows whose keys the changes touch (a vector), and the rows that are alive

A table that was created in the stream has no snapshot, and begins with its changes. Cost: for each layer one pass over the
files' bytes, and for current, if there are changes since the snapshot, one scan of the snapshot's key columns. Rows are read
if their `_lp_key` is computed, which are written anew in both layers; and the keys that a person configured, to see that
each is there once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa

from lakeproof.hidden_columns import DUP, KEY, LSN, OP, ORD, TEXT
from lakeproof.lake.columns import (
    column_names,
    current_columns,
    has_old_rows,
    history_columns,
    keeps_key,
    merge_key,
)
from lakeproof.lake.cycle.table import (
    FoldedRange,
    RangePart,
    layer_request,
    of_one_schema,
    refuse_unlinkable,
)
from lakeproof.lake.cycle.task import SnapshotEntry, TableCommits, TableResult, TableTask
from lakeproof.lake.delta.files.links import landed_file
from lakeproof.lake.delta.link_commit import Link, LinkRequest, prepare_links
from lakeproof.lake.delta.search import ChunkBase
from lakeproof.lake.fold.key_fold import KEY_BYTES_MAX, fold_keys, in_landing, sum_of
from lakeproof.lake.records.documents import Copy, HistorySum
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.lake.rows.change import (
    AllRows,
    DriftedError,
    Numbers,
    Removed,
    Unsupported,
    check_counts,
    check_keys,
    codes,
    in_memory,
)
from lakeproof.lake.rows.file_rows import TableRange
from lakeproof.landing.segments.segment import ROW_GROUP_BYTES
from lakeproof.names import Layer
from lakeproof.schema import SchemaVersion

COMPARED = "a copy of it is compared with what the lake has"
_NOTHING = RangePart((), iter(()), 0)
# What a snapshot's rows have beside the table's columns, or what is computed from them: the rest of history's is NULL.
_OF_CHUNKS = frozenset({TEXT, ORD, LSN, OP, KEY, DUP})


def entry_range(task: TableTask, entry: SnapshotEntry) -> TableRange:
    """Return the changes since a snapshot; raises `Unsupported` if manifests say that Spark has to write the entry."""
    if task.before is not None:
        raise Unsupported(COMPARED)
    changes = of_one_schema(task.since_snapshot(entry))
    refuse_unlinkable(task, changes.landed, entry)
    return changes


def write_entry(task: TableTask, entry: SnapshotEntry) -> TableResult:
    """Write a table's first rows in this process.

    Raises `Unsupported`, before any commit, if Spark is to write them, LakeError about a damaged file, and DriftedError if
    the snapshot does not have the rows that the changes presuppose.
    """
    changes, base = entry_range(task, entry), None
    match entry.source:
        case Copy(folder) if entry.table.chunks:
            base = ChunkBase(task.lake.store, folder, task.schema, entry.table.chunks)
    if has_old_rows(task.schema) and base is not None:
        _check_unique(task.schema, base)
    since = None
    if changes.counts.rows:
        since = FoldedRange(task, fold_keys(changes.landed, changes.counts, base))
    commits = _Entry(task, entry, base, since).prepared()
    return commits.made(task, changes.counts).entered().by("arrow", "a first copy")


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
class _Entry:
    """A table's entry: its snapshot's rows, and the changes since, added up; None if there are none."""

    task: TableTask
    entry: SnapshotEntry
    base: ChunkBase | None
    changes: FoldedRange | None

    def prepared(self) -> TableCommits:
        """Prepare both commits; nothing is committed yet."""
        # What can't be read, or is not what the changes presuppose, leaves no file of history.
        left_out, total, schema = self._left_out(), self._sum(), self.task.schema
        history = prepare_links(self._request("history", self._snapshot(history_columns(schema), {})))
        # On two file systems history's files may be copies.
        with history.or_discarded():
            snapshot = _NOTHING if left_out is None else self._snapshot(current_columns(schema), left_out)
            current = prepare_links(self._request("current", snapshot), history)
            return TableCommits(history, total, current)

    def _request(self, layer: Layer, snapshot: RangePart) -> LinkRequest:
        """Return the commit of the snapshot's rows, and of what the changes bring."""
        part = _NOTHING if self.changes is None else self.changes.part(layer)
        return layer_request(self.task, layer, [snapshot, part], None)

    def _sum(self) -> HistorySum:
        """Return the sum of history's rows: of the snapshot's its writer's, unless they get a computed key."""
        schema = self.task.schema
        if keeps_key(schema):
            total = sum_of(schema, self._snapshot(history_columns(schema), {}).rows)
        else:
            total = reduce(HistorySum.plus, (HistorySum(c.rows, c.sum) for c in self.entry.table.chunks), HistorySum())
        return total if self.changes is None else total.plus(self.changes.fold.sum())

    def _snapshot(self, columns: Sequence[str], left_out: Mapping[int, Numbers]) -> RangePart:
        """Return the snapshot's rows, without those left out, by their chunk's number: links, or rows with keys."""
        base, schema = self.base, self.task.schema
        if base is None:
            return _NOTHING
        left = {c: left_out.get(c.number) for c in base.chunks}
        kept = {c: rows for c, rows in left.items() if rows is None or len(rows) < c.rows}
        if not keeps_key(schema):
            links = [Link(landed_file(base.url(chunk), chunk), rows) for chunk, rows in kept.items()]
            return RangePart(links, iter(()), 0)
        names = [name for name in in_landing(schema, columns) if name in _OF_CHUNKS or name in column_names(schema)]
        if any(chunk.decoded.row > ROW_GROUP_BYTES for chunk in kept):
            raise Unsupported(f"a row has more than {ROW_GROUP_BYTES >> 20} MiB, and gets a computed key")
        numbers = {
            c: np.arange(c.rows) if rows is None else np.setdiff1d(np.arange(c.rows), rows) for c, rows in kept.items()
        }
        rows = (part for chunk, chosen in numbers.items() for part in base.rows(chunk, names, chosen))
        return RangePart((), rows, sum(map(len, numbers.values())))

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
