"""A table that the lake has and whose copy enters, written by this process: what differs becomes a correction.

The copy is of the whole table, or of single keys. The same by Spark, for what is `Unsupported` here, is in `table_by_spark`,
with a table that is made anew behind a `reset`; comparing two states is in `lakeproof.lake.rows.difference`.

    desired@X  = copy@C + changes of (C, X]
    kept@X     = persisted + its own changes up to X, unless it was held and missed some, or they do not fit it
    correction = desired@X - kept@X, written to history as it is

Current takes the own changes and the correction together, in one commit: the rows that go by their places, and all others in
new files. A copy of keys is one at the cycle's end, so it has no changes of its own to take; what is compared are the rows
under its keys alone, and under all other keys the lake must have what the range's changes presuppose. If changes of the
copied keys do not fit the damaged rows (a row is missing whose large value an update left unchanged), they are not taken:
the correction brings their result, all that is there under these keys goes, in history too, and the copy's rows come. What
can't be entered by keys holds the table, and whoever repairs it copies the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.errors import InvariantError
from lakeproof.hidden_columns import DUP, KEY, LSN, OP, ORD, TEXT
from lakeproof.lake.columns import (
    column_names,
    current_columns,
    history_columns,
    in_lake,
    keeps_key,
    layer_columns,
    merge_key,
)
from lakeproof.lake.cycle.persisted import OWN, Persisted, one_batch
from lakeproof.lake.cycle.table import Entry, RangePart, entry_range, layer_request, of_one_schema
from lakeproof.lake.cycle.task import (
    KeyedEntry,
    SnapshotEntry,
    TableCommits,
    TableResult,
    TableTask,
    carried,
    exact_from_end,
)
from lakeproof.lake.delta.arrow_rows import DeltaRows, in_schema
from lakeproof.lake.delta.link_commit import RowCommit, prepare_links
from lakeproof.lake.delta.search import ChunkBase, find_places
from lakeproof.lake.fold.key_fold import sum_of
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.lake.rows.change import (
    FIRST,
    Numbers,
    Removed,
    UnfitError,
    Unsupported,
    check_keys,
    distinct_rows,
    unchecked,
    under_keys,
)
from lakeproof.lake.rows.difference import (
    FILE,
    NUMBER,
    Difference,
    Side,
    compare,
    compare_rows,
    digests_of,
    keys_of,
)
from lakeproof.lake.rows.history_ops import CORRECT_DELETE, CORRECT_INSERT, GAP, gap_text
from lakeproof.lake.spark_on_demand import NoSparkError, SparkOnDemand
from lakeproof.landing.segments.segment import ROW_GROUP_BYTES
from lakeproof.names import Layer
from lakeproof.schema import SchemaVersion

# So many bytes, decoded, of a copy are compared by this process, whose threads share one machine.
COPY_BYTES_MAX = 4 << 30
_COMPARED = "a copy of it, compared with what the lake has"


def check_again(task: TableTask, entry: SnapshotEntry, before: CutTable) -> None:
    """Raise `Unsupported` if manifests say that Spark has to write a copy of a table that the lake has."""
    _check_readable(entry)
    entry_range(task, entry)
    _check_rows(task, before)


def _check_readable(entry: SnapshotEntry) -> None:
    if entry.unreadable:
        raise Unsupported("what the lake has of it can't be read")


def _check_rows(task: TableTask, before: CutTable) -> None:
    """Raise `Unsupported` if the lake's rows are not those of the copy by their columns, or too large."""
    old, new = in_lake(before.version), task.schema
    if (merge_key(old), current_columns(old)) != (merge_key(new), current_columns(new)):
        raise Unsupported("a copy of it has another key than the lake")
    if task.row_bytes > ROW_GROUP_BYTES:
        raise Unsupported(f"a row has more than {ROW_GROUP_BYTES >> 20} MiB")


def write_again(spark: SparkOnDemand, task: TableTask, entry: SnapshotEntry, before: CutTable) -> TableResult:
    """Write a table that the lake has: its changes (unless it was held and missed some) and a correction, in one commit.

    Raises `Unsupported`, before any commit, if Spark is to write it, and what `Entry` and reading raise.
    """
    _check_readable(entry)
    _check_rows(task, before)
    _leave_large(spark, entry)
    intent, entering = task.intent, Entry.of(task, entry)
    same_life = before.incarnation == intent.incarnation
    gap = None
    if not same_life:
        since, to = (before.incarnation, before.at_lsn), (intent.incarnation, entry.consistent_point)
        gap = {LSN: int(to[1]), OP: GAP, TEXT: gap_text(since, to)}
    follows = same_life and before.at_lsn == intent.start_lsn
    commits = None
    if follows:
        # Changes that do not fit what is persisted are not written: history has the correction instead of them. What is
        # wrong with the copy is raised again.
        with suppress(TableHeldError, UnfitError):
            commits = _compared(Persisted.of(task, before, own=True), entering, gap)
    if commits is None:
        commits = _compared(Persisted.of(task, before, own=False), entering, gap)
    result = commits.made(task)
    is_missing = follows and task.files and commits.persisted.own is None
    return exact_from_end(task, result) if is_missing else result


def _leave_large(spark: SparkOnDemand, entry: SnapshotEntry) -> None:
    """Raise `Unsupported` about a large copy if Spark can be started, which has all machines for one table."""
    if sum(chunk.decoded.bytes for chunk in entry.table.chunks) <= COPY_BYTES_MAX:
        return
    with suppress(NoSparkError, TableHeldError):
        spark.get()
        raise Unsupported(f"its copy takes more than {COPY_BYTES_MAX >> 30} GiB")


def write_keys(task: TableTask, keyed: KeyedEntry, before: CutTable) -> TableResult:
    """Write a table with the rows of a copy of single keys; without a difference and without changes, nothing.

    Raises TableHeldError, before any commit, if that can't be, or if the lake does not have what the changes of all other
    keys presuppose; and what reading raises.
    """
    if keyed.consistent_point != task.intent.end_lsn:
        raise InvariantError(str(task.table), "a copy of keys enters where it was not made", "report this")
    try:
        _check_rows(task, before)
        of_one_schema(task.own_range())
        correction = _keyed_correction(task, keyed, before)
        if correction.persisted.own is None and not correction.rows:
            return carried(task, before)
        return correction.prepared().made(task)
    except Unsupported as error:
        problem = {"problem": f"rows of single keys can't be entered: {error}"}
        raise TableHeldError(str(task.table), HeldCause.DATA_REFUSED, WayOut.SNAPSHOT, problem) from error


def _keyed_correction(task: TableTask, keyed: KeyedEntry, before: CutTable) -> _Correction:
    """Compare the rows under a copy's keys; raises DriftedError about all other keys, and `Unsupported`."""
    schema, copied = task.schema, keyed.table
    rows, as_rows = (ChunkBase(task.lake.store, keyed.key, schema, of.chunks) for of in (copied.rows, copied.keys))
    keys = distinct_rows(
        pa.concat_tables([p for c in as_rows.chunks for p in as_rows.rows(c, list(merge_key(schema)))])
    )
    try:
        persisted, is_fit = Persisted.of(task, before, own=True), True
    except (TableHeldError, UnfitError):
        persisted, is_fit = Persisted.of(task, before, own=True, left_out=keys), False
    _check_others(task, persisted, keys)
    desired, there = _under(keys, rows, persisted), persisted.under(keys)
    if is_fit:
        return _Correction(persisted, compare_rows(schema, desired, there), None)
    difference = Difference(there.rows(), desired.rows())
    gone = _under(keys, as_rows, persisted).rows()
    for side in (difference.go, difference.come):
        gone = gone.filter(pa.array(~np.isin(*(keys_of(schema, part).to_numpy(False) for part in (gone, side)))))
    return _Correction(persisted, difference, None, gone)


def _compared(persisted: Persisted, entering: Entry, gap: Mapping[str, object] | None) -> _CorrectionCommits:
    """Compare a whole copy with what is persisted, and prepare the commits of the difference."""
    schema = persisted.rows.schema_of([*column_names(entering.task.schema), TEXT])
    desired = Side(schema, lambda: (one_batch(part, schema) for part in entering.rows(schema.names) if part.num_rows))
    return _Correction(persisted, compare(entering.task.schema, desired, persisted.side), gap).prepared()


@dataclass(frozen=True, slots=True)
class _CorrectionCommits:
    """A table's two commits, prepared; `own_rows` of history come from no change, `corrected` of them from a difference."""

    persisted: Persisted
    commits: TableCommits
    own_rows: int
    corrected: int

    def made(self, task: TableTask) -> TableResult:
        """Make both commits."""
        result = self.commits.made(task, self.persisted.counts).by("arrow", _COMPARED)
        result = replace(result, own_rows=self.own_rows)
        # Nobody knows if the lake was damaged, or if changes were never sent.
        return exact_from_end(task, result) if self.corrected else result


@dataclass(frozen=True, slots=True)
class _Correction:
    """A difference to be committed together with the table's own changes; `gap` are values of history's row before it.

    `gone`: keys, as rows, of which neither side has a row; history may have one.
    """

    persisted: Persisted
    difference: Difference
    gap: Mapping[str, object] | None
    gone: pa.Table | None = None

    @property
    def rows(self) -> int:
        """The number of rows that differ."""
        return int(self.difference.go.num_rows + self.difference.come.num_rows)

    def prepared(self) -> _CorrectionCommits:
        """Prepare both commits; nothing is committed yet. Raises `Unsupported`."""
        task, events = self.persisted.task, self._events()
        persisted = self.persisted.without(self._going(OWN))
        paths, files = persisted.paths, self.difference.go.column(FILE).unique().to_pylist()
        places = {paths[file]: self._going(file) for file in files if file != OWN}
        current = _prepared(persisted, "current", [_in_current(task.schema, events[-1])], places)
        with current.or_discarded():
            total = persisted.before.history_sum.plus(sum_of(task.schema, iter(events)))
            if persisted.own is not None:
                total = total.plus(persisted.own.fold.sum())
            history = _prepared(persisted, "history", events, {}, current)
        own_rows = sum(part.num_rows for part in events)
        return _CorrectionCommits(persisted, TableCommits(history, total, current), own_rows, self.rows)

    def _going(self, file: int) -> Numbers:
        """Return the numbers of a file's rows that go, in order."""
        go = self.difference.go
        return np.sort(go.filter(pc.equal(go.column(FILE), file)).column(NUMBER).to_numpy())

    def _events(self) -> list[pa.Table]:
        """Return history's rows of the gap, of the rows that go, and of the rows that come."""
        task, difference = self.persisted.task, self.difference
        first = task.intent.own_ordinal
        events = [] if self.gap is None else [pa.table({name: [value] for name, value in self.gap.items()})]
        parts = [(CORRECT_DELETE, difference.go), (CORRECT_DELETE, self.gone), (CORRECT_INSERT, difference.come)]
        for op, rows in ((op, rows) for op, rows in parts if rows is not None):
            positions = pa.array([int(task.intent.end_lsn)] * rows.num_rows, pa.int64())
            given = {LSN: positions, OP: pa.array([op] * rows.num_rows, pa.string())}
            events.append(pa.table({**_values(task.schema, rows), **given}))
        delta = DeltaRows.open(task.path("history"), self.persisted.before.history_version, files=())
        schema = delta.schema_of(history_columns(task.schema))
        result = []
        for part in events:
            ordinals = pa.array(np.arange(first, first + part.num_rows), pa.int64())
            result.append(in_schema(part.append_column(ORD, ordinals), schema))
            first += part.num_rows
        return result


def _prepared(
    persisted: Persisted,
    layer: Layer,
    parts: Sequence[pa.Table],
    places: Mapping[str, Numbers],
    beside: RowCommit | None = None,
) -> RowCommit:
    """Prepare one layer's commit: the table's own changes, if they are taken, and rows that come and go beside them."""
    task, own, before = persisted.task, persisted.own, persisted.before
    ranges = [RangePart((), iter(parts))]
    removed = None
    if own is not None:
        ranges.append(own.part(layer))
        # What they presuppose need not be there: the correction is made of what is.
        removed = unchecked(own.fold.removed) if layer == "current" else None
    request = layer_request(task, layer, ranges, removed)
    delta = DeltaRows.open(request.path, before.version_of(layer), files=())
    schema = delta.schema_of(layer_columns(task.schema, layer))
    rows = (in_schema(part, schema) for part in request.rows if part.num_rows)
    return prepare_links(replace(request, rows=rows, places=places), beside)


def _in_current(schema: SchemaVersion, events: pa.Table) -> pa.Table:
    """Return history's rows that come as current has them, each with its place there."""
    rows = events.select([name for name in current_columns(schema) if name in events.column_names])
    return rows.append_column(DUP, events.column(ORD)) if schema.is_bag else rows


def _values(schema: SchemaVersion, rows: pa.Table) -> dict[str, pa.Array]:
    """Return the values of rows, `_lp_text`, and `_lp_key` if the table has it."""
    values = {name: rows.column(name) for name in [*column_names(schema), TEXT]}
    if keeps_key(schema):
        values[KEY] = (digests_of if schema.is_bag else keys_of)(schema, rows)
    return values


def _under(keys: pa.Table, base: ChunkBase, persisted: Persisted) -> Side:
    """Return the rows of a copy that have one of its keys: PostgreSQL may have found a row of another exact key."""
    columns = persisted.rows.schema_of([*column_names(base.schema), TEXT])
    names = [*columns.names, *(name for name in keys.column_names if name not in columns.names)]

    def read() -> Iterator[pa.RecordBatch]:
        for chunk in base.chunks:
            for part in base.rows(chunk, names):
                yield one_batch(part.filter(pa.array(under_keys(part, keys))), columns)

    return Side(columns, read)


def _check_others(task: TableTask, persisted: Persisted, keys: pa.Table) -> None:
    """Raise DriftedError unless the lake has the rows that the changes of all other keys presuppose."""
    match None if persisted.own is None else persisted.own.fold.removed:
        case Removed(key, rows) as removed if task.sends_everything:
            others = rows.filter(pa.array(~under_keys(rows, keys)))
            expected = others.num_rows - others.column(FIRST).null_count
            places = find_places(persisted.state, key, others)
            check_keys(str(task.table), replace(removed, rows=others, presupposed=expected), places.keys)
