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

from lakeproof.change_counts import ChangeCounts
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
    left_to_spark,
    of_one_schema,
    refuse_unlinkable,
)
from lakeproof.lake.cycle.task import SnapshotEntry, TableCommits, TableResult, TableTask
from lakeproof.lake.delta.committer import Unsupported
from lakeproof.lake.delta.files.links import landed_file
from lakeproof.lake.delta.link_commit import Link, LinkRequest, prepare_links
from lakeproof.lake.delta.search import ChunkBase
from lakeproof.lake.fold.key_fold import KEY_BYTES_MAX, fold_keys, in_landing, sum_of
from lakeproof.lake.records.documents import Copy, HistorySum
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.lake.rows.change import AllRows, DriftedError, Numbers, Removed, check_counts, check_keys, codes
from lakeproof.lake.rows.file_rows import LandedRange, TableRange
from lakeproof.landing.segments.segment import ROW_GROUP_BYTES
from lakeproof.schema import SchemaVersion

COMPARED = "a copy of it is compared with what the lake has"
_NOTHING = RangePart((), iter(()), 0)
# What a snapshot's rows have beside the table's columns, or what is computed from them: the rest of history's is NULL.
_OF_CHUNKS = frozenset({TEXT, ORD, LSN, OP, KEY, DUP})


@dataclass(frozen=True, slots=True)
class _Entry:
    """A table's entry: its snapshot's rows, and the changes since, added up; None if there are none."""

    task: TableTask
    entry: SnapshotEntry
    base: ChunkBase | None
    changes: FoldedRange | None


def _chunk_base(task: TableTask, entry: SnapshotEntry) -> ChunkBase | None:
    """Return a snapshot's rows; None if it has none."""
    match entry.source:
        case Copy(folder) if entry.table.chunks:
            return ChunkBase(task.lake.store, folder, task.schema, entry.table.chunks)
    return None


def entry_range(task: TableTask, entry: SnapshotEntry) -> TableRange:
    """Return the changes since a snapshot; raises `Unsupported` if manifests say that Spark has to write the entry."""
    if task.before is not None:
        raise Unsupported(COMPARED)
    changes = of_one_schema(task.since_snapshot(entry))
    refuse_unlinkable(task, changes.landed, entry)
    return changes


def write_entry(task: TableTask, entry: SnapshotEntry) -> TableResult:
    """Write a table's first rows in this process; raises `Unsupported`, before any commit, if Spark is to write them."""
    changes = entry_range(task, entry)
    commits = _prepare_entry(task, entry, changes.landed, changes.counts)
    return commits.made(task, changes.counts).entered().by("arrow", "a first copy")


def _prepare_entry(task: TableTask, entry: SnapshotEntry, landed: LandedRange, counts: ChangeCounts) -> TableCommits:
    """Prepare both commits of an entry with the changes since its snapshot, `landed`; nothing is committed yet.

    Raises `Unsupported` if Spark should write it, LakeError about a damaged file, and DriftedError if the snapshot does not
    have the rows that the changes presuppose.
    """
    base, changes = _chunk_base(task, entry), None
    if has_old_rows(landed.schema) and base is not None:
        _check_unique(landed.schema, base)
    with left_to_spark():
        if counts.rows:
            changes = FoldedRange(task, landed, fold_keys(landed, counts, base))
        one = _Entry(task, entry, base, changes)
        left_out = _left_out(one)
        request, total = _history(one, landed.schema)
        history = prepare_links(request)
        # On two file systems history's files may be copies.
        with history.or_discarded():
            return TableCommits(history, total, prepare_links(_current(one, landed.schema, left_out), history))


def _check_unique(schema: SchemaVersion, base: ChunkBase) -> None:
    """Raise TableHeldError if a configured key is not unique in the snapshot's rows."""
    if schema.is_bag:
        return
    key, parts, size = merge_key(schema), list[pa.Table](), 0
    for rows in (part for chunk in base.chunks for part in base.rows(chunk, key)):
        size += rows.nbytes
        if size > KEY_BYTES_MAX:
            raise Unsupported(f"a key that is configured takes more than {KEY_BYTES_MAX >> 20} MiB in its rows")
        parts.append(rows)
    if parts and codes(pa.concat_tables(parts), key)[1] < sum(part.num_rows for part in parts):
        raise TableHeldError(str(schema.table), HeldCause.KEY_NOT_UNIQUE, WayOut.OTHER_KEY_THEN_SNAPSHOT)


def _history(one: _Entry, schema: SchemaVersion) -> tuple[LinkRequest, HistorySum]:
    """Return history's commit, and the sum of its rows."""
    part = _NOTHING if one.changes is None else one.changes.history(may_link=True)
    snapshot = _snapshot(one, schema, history_columns(schema), {})
    total = _sum(one, schema)
    if one.changes is not None:
        total = total.plus(one.changes.all_rows.sum())
    return layer_request(one.task, "history", [snapshot, part], None), total


def _sum(one: _Entry, schema: SchemaVersion) -> HistorySum:
    """Return the sum of the snapshot's rows in history: its writer's, unless they get a computed key."""
    if keeps_key(schema):
        return sum_of(schema, _snapshot(one, schema, history_columns(schema), {}).rows)
    return reduce(HistorySum.plus, (HistorySum(c.rows, c.sum) for c in one.entry.table.chunks), HistorySum())


def _snapshot(one: _Entry, schema: SchemaVersion, columns: Sequence[str], left_out: Mapping[int, Numbers]) -> RangePart:
    """Return the snapshot's rows, without those left out, by their chunk's number: links, or rows with keys."""
    base = one.base
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


def _current(one: _Entry, schema: SchemaVersion, left_out: Mapping[int, Numbers] | None) -> LinkRequest:
    """Return current's commit; `left_out` as `_left_out` gives it."""
    part = _NOTHING if one.changes is None else one.changes.current(may_link=True)
    snapshot = _NOTHING if left_out is None else _snapshot(one, schema, current_columns(schema), left_out)
    return layer_request(one.task, "current", [snapshot, part], None)


def _left_out(one: _Entry) -> dict[int, Numbers] | None:
    """Return the numbers of the rows that current does not get, by the number of their chunk; None: it gets none of any.

    Raises DriftedError if the rows are not those that the changes presuppose.
    """
    if one.changes is None:
        return {}
    removed, base, thing = one.changes.fold.removed, one.base, str(one.task.table)
    left_out, met = dict[int, Numbers](), [np.empty(0, np.int64)]
    try:
        match removed:
            case AllRows(presupposed):
                check_counts(thing, presupposed)
            case Removed(_, sought):
                for chunk, numbers, keys in () if base is None else base.places(sought):
                    left_out[chunk.number] = np.sort(numbers)
                    met.append(keys)
                check_keys(thing, removed, np.concatenate(met))
    except DriftedError:
        if one.task.sends_everything:
            raise
    return None if isinstance(removed, AllRows) else left_out
