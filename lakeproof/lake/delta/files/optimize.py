"""Compacting small files, in one commit that changes no data, along a column: history's order, or current's key.

Choosing tables and times belongs to `lakeproof.commands.maintain`; the cycle around it to `lakeproof.lake.cycle`, for a view
to `lakeproof.views.maintain`; removing the replaced files to `files`.

If files were put together by size alone, each new one might hold the oldest and the newest rows, and positions and times
would no longer be pruned. So history's files are taken in the order of their rows, neighbours with neighbours, and the rows
are sorted: a compacted file covers one range of positions. Each of current's small files may have any keys. Files that
overlap are one run of any size, whose rows are parted by range: a compacted file covers one range of keys.

A run up to `IN_PROCESS_BYTES_MAX` is read, sorted and written by this process. Spark takes a larger one, if it runs; if not,
this process takes it in pieces of that size. No JVM is started for it.

A table that gets a cycle a second would be all small files before somebody maintains it. So the smallest of them are put
together between cycles (`packable`), counted by bytes: each byte comes into a file that is at least twice as large, so it is
written again as often as the number of its bytes can be doubled, and never beyond `PACKED_BYTES_MAX`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.lake.delta.arrow_rows import DeltaRows
from lakeproof.lake.delta.committer import AddedFile, LoggedOperation, PendingCommit
from lakeproof.lake.delta.files.data_files import DeltaFile, data_file, opened_data_file
from lakeproof.lake.delta.files.needed import table_files
from lakeproof.lake.delta.link_commit import write_rows
from lakeproof.lake.delta.log.commits import Action
from lakeproof.lake.delta.log.protocol import check_writable, in_files, statistics_of
from lakeproof.lake.delta.log.state import TableState, kept_state
from lakeproof.lake.delta.search import bounds_in_log
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.storage.folder import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SMALL_BYTES = 16 << 20
TARGET_BYTES = 128 << 20
# The most that this process holds of one run, as its files have it without compression.
IN_PROCESS_BYTES_MAX = 64 << 20
# The most bytes of a run's rows that are held, to be put in their order. A file may have each of its repeated values once:
# then its size without compression says little of what they take in memory. Rows of more bytes are written as they come.
HELD_BYTES_MAX = 256 << 20
_ROWS_AT_ONCE = 4_096
# The most bytes of files that are put together between two cycles.
PACKED_BYTES_MAX = 32 << 20
# Rewrite a file once this fraction of its rows is deleted.
_DELETED_ROWS_MAX = 0.05


def is_fragmented(path: str, version: int, small_files: int) -> bool:
    """True if the table has so many small files; reads its log."""
    return is_small(table_files(path, version).newest, small_files)


def is_small(files: Iterable[DeltaFile], small_files: int) -> bool:
    """True if so many of these files are small."""
    return sum(1 for file in files if file.bytes < SMALL_BYTES) >= small_files


def packable(state: TableState) -> list[Action]:
    """Return the smallest files, as many as are worth putting together: none is larger than all smaller ones together."""
    chosen: list[Action] = []
    total = 0
    for entry in sorted(state.files.values(), key=_size):
        if total + _size(entry) > PACKED_BYTES_MAX:
            break
        chosen.append(entry)
        total += _size(entry)
    while len(chosen) > 1 and 2 * _size(chosen[-1]) > total:
        total -= _size(chosen.pop())
    return chosen if len(chosen) > 1 else []


def is_crowded(path: str, version: int, small_files: int) -> bool:
    """True if so many files of a version that this process has just made are `packable`; nothing is read."""
    state = kept_state(path, version)
    return state is not None and len(state.files) >= small_files and len(packable(state)) >= small_files


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """The small files of a version, put together along the column `order`, if there is one."""

    spark: SparkOnDemand
    state: TableState
    order: str | None = None
    held_bytes_max: int = HELD_BYTES_MAX

    def optimize(self, number: int, user_metadata: str, *, packing: bool = False) -> int:
        """Make one commit that carries `user_metadata`, or none if no file needs it; returns the version then.

        `number` is the cycle's. `packing`: only what is `packable`. If someone else has committed since, TransientError is
        raised: their rows are not ours to name.
        """
        state = self.state
        check_writable(state)
        chosen = self._packed() if packing else self._runs()
        runs_of_files = [piece for run in chosen for piece in self._pieces(run)]
        if not runs_of_files:
            return state.version
        change = PendingCommit(state.path, state)
        rows = files = 0
        for run in runs_of_files:
            new = self._rewritten(run, number)
            for entry in run:
                change.remove(entry, data_change=False)
            rows += change.add(new, data_change=False)
            files += len(new)
        counts = {"numRemovedFiles": sum(map(len, runs_of_files)), "numAddedFiles": files, "numOutputRows": rows}
        parameters = {"predicate": "[]", "zOrderBy": "[]", "auto": "false"}
        return change.commit(None, LoggedOperation("OPTIMIZE", parameters, counts, user_metadata)).version

    def _runs(self) -> list[list[Action]]:
        """Return the files to put together; without an order, or without bounds of it, one is as good as another."""
        physical = "" if self.order is None else self.state.physical()[self.order]
        placed = []
        for entry in self.state.files.values():
            bounds = bounds_in_log(entry, physical) if physical else None
            low, high = (None, None) if bounds is None else bounds
            placed.append(Placed(low, high, data_file(entry).bytes, _lost_rows(entry) > _DELETED_ROWS_MAX, entry))
        if any(file.low is None or file.high is None for file in placed):
            return _by_size(placed)
        return neighbours(placed)

    def _packed(self) -> list[list[Action]]:
        """Return the packable files as one run, along the column if all say what they have of it; none for no files."""
        files = packable(self.state)
        if not files or self.order is None:
            return [files] if files else []
        physical = self.state.physical()[self.order]
        lows = {entry["path"]: bounds[0] for entry in files if (bounds := bounds_in_log(entry, physical)) is not None}
        return [sorted(files, key=lambda entry: lows[entry["path"]]) if len(lows) == len(files) else files]

    def _pieces(self, run: Sequence[Action]) -> list[list[Action]]:
        """Return a run in the parts that are rewritten by themselves: whole for Spark, else such as this process can take.

        Two files of any size that are small are taken, so that each piece leaves fewer files.
        """
        sizes = [self._bytes_in(entry) for entry in run]
        if self._is_for_spark or self.spark.started is not None or sum(sizes) <= IN_PROCESS_BYTES_MAX:
            return [list(run)]
        pieces: list[list[Action]] = []
        total = 0
        for entry, size in zip(run, sizes, strict=True):
            is_second = bool(pieces) and len(pieces[-1]) == 1 and _size(entry) < SMALL_BYTES
            if not pieces or not (total + size <= IN_PROCESS_BYTES_MAX or is_second):
                pieces.append([])
                total = 0
            pieces[-1].append(entry)
            total += size
        return [piece for piece in pieces if len(piece) > 1 or _lost_rows(piece[0]) > _DELETED_ROWS_MAX]

    @property
    def _is_for_spark(self) -> bool:
        # Arrow finds a field inside a struct by its name alone.
        return self.spark.everywhere or any(in_files(field["type"]) != field["type"] for field in self.state.fields)

    def _rewritten(self, run: Sequence[Action], number: int) -> list[AddedFile]:
        state = self.state
        count = 1 + sum(data_file(entry).bytes for entry in run) // TARGET_BYTES
        size = sum(self._bytes_in(entry) for entry in run)
        if self._is_for_spark or (self.spark.started is not None and size > IN_PROCESS_BYTES_MAX):
            # Imported here because they import Spark.
            from lakeproof.lake.delta.files.by_spark import rows_of_files, write_by_spark

            rows = _in_files(rows_of_files(self.spark.get(), state, run), count, self.order)
            return write_by_spark(rows, state.path, number, state.metadata)
        folder, chosen = Folder.at(state.path), statistics_of(state.metadata)
        return [
            file
            for rows in self._rows_of_files(run, count)
            for file in write_rows(rows, folder, number, state.fields, chosen)
        ]

    def _rows_of_files(self, run: Sequence[Action], count: int) -> Iterator[Iterable[pa.Table]]:
        """Yield the rows of so many files, along the column; those that are too many to be held as they come."""
        table = DeltaRows.of_state(self.state)
        names = table.schema.names
        batches = (batch for entry in run for batch in table.of_file(data_file(entry), names, _ROWS_AT_ONCE))
        held, held_bytes = list[pa.RecordBatch](), 0
        for batch in batches:
            held.append(batch)
            held_bytes += batch.nbytes
            if held_bytes > self.held_bytes_max:
                yield (pa.table(part) for part in chain(held, batches))
                return
        if not held:
            return
        rows = pa.Table.from_batches(held)
        if self.order is not None:
            # By number: Arrow takes a name that begins with a dot for a path.
            column = pa.table({"0": rows.column(self.order)})
            rows = rows.take(pc.sort_indices(column, [("0", "ascending")]))
        size = max(1, -(-rows.num_rows // count))
        yield from ([rows.slice(first, size)] for first in range(0, rows.num_rows, size))

    def _bytes_in(self, entry: Action) -> int:
        with opened_data_file(Folder.at(self.state.path), data_file(entry).path) as parquet:
            metadata = parquet.metadata
            return sum(int(metadata.row_group(group).total_byte_size) for group in range(metadata.num_row_groups))


def in_large_files(rows: DataFrame, size: int, order: str | None) -> DataFrame:
    """Return rows of `size` bytes in partitions for files of the usual size, along the column `order` if it is given."""
    return _in_files(rows, 1 + size // TARGET_BYTES, order)


def _in_files(rows: DataFrame, count: int, order: str | None) -> DataFrame:
    if order is None:
        return rows.coalesce(count)
    from lakeproof.lake.rows.columns import col

    column = col(order)
    rows = rows.coalesce(1) if count == 1 else rows.repartitionByRange(count, column)
    return rows.sortWithinPartitions(column)


@dataclass(frozen=True, slots=True)
class Placed:
    """A file with the least and the greatest position of its rows; `must_rewrite`: rewrite it at any size."""

    low: Any
    high: Any
    bytes: int
    must_rewrite: bool
    file: Action

    @property
    def is_small(self) -> bool:
        """True if it should be compacted with its neighbours."""
        return self.must_rewrite or self.bytes < SMALL_BYTES


def _size(entry: Action) -> int:
    return int(entry.get("size") or 0)


def _lost_rows(entry: Action) -> float:
    file = data_file(entry)
    return 0.0 if file.deleted is None or not file.rows else file.deleted.rows / file.rows


def _by_size(files: Iterable[Placed]) -> list[list[Action]]:
    """Group small files, the smallest first, as many as fit into one; a file that must be rewritten may be alone."""
    groups: list[list[Placed]] = []
    for file in sorted((f for f in files if f.is_small), key=lambda f: f.bytes):
        if groups and _bytes(groups[-1]) + file.bytes <= TARGET_BYTES:
            groups[-1].append(file)
        else:
            groups.append([file])
    return [[f.file for f in g] for g in groups if len(g) > 1 or g[0].must_rewrite]


def neighbours(files: Iterable[Placed]) -> list[list[Action]]:
    """Group files to compact: small neighbours, as many as fit, and all that overlap.

    A single one joins the large file before it. A large file parts neighbours, unless it overlaps them.
    """
    groups: list[list[Placed]] = []
    before: Placed | None = None
    run: list[Placed] = []
    high: Any = None
    for file in sorted(files, key=lambda f: (f.low, f.high)):
        overlaps = bool(run) and file.low < high
        if run and file.is_small and (overlaps or _bytes(run) + file.bytes <= TARGET_BYTES):
            run.append(file)
            high = max(high, file.high)
            continue
        if overlaps:
            continue
        groups += _closed(before, run)
        before = run[-1] if run else before
        run, high = [file] if file.is_small else [], file.high
        before = before if run else file
    groups += _closed(before, run)
    return [[placed.file for placed in run] for run in groups]


def _closed(before: Placed | None, run: Sequence[Placed]) -> list[list[Placed]]:
    if len(run) > 1 or any(file.must_rewrite for file in run):
        return [list(run)]
    if run and before is not None and not before.is_small and before.bytes + run[0].bytes <= TARGET_BYTES:
        return [[before, *run]]
    return []


def _bytes(files: Iterable[Placed]) -> int:
    return sum(file.bytes for file in files)
