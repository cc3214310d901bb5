"""A table's rows that came and went between two versions, read by their places without Spark, if they are few.

What a change means does not belong here (`lakeproof.views`). `row_changes` has the same from Delta's own reader, for any
number of rows: that reads each file once for every version that has touched it, and whole.

    a file that came    its rows that are not deleted
    a file that stays   the difference of its two deletion vectors: of the row groups that have one of those rows
    a file that went    its rows that were not deleted

Commits that only put files together or change the columns, files whose rows nobody counted, and whatever can't be read here
are left to `row_changes`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lakeproof.errors import LakeError
from lakeproof.hidden_columns import CAME
from lakeproof.lake.delta.arrow_rows import DeltaRows, deleted_rows
from lakeproof.lake.delta.files import DeltaFile, data_file
from lakeproof.lake.delta.log import commit_name, read_actions
from lakeproof.lake.spark.scanned_rows import note_rows
from lakeproof.storage.folder import Folder
from lakeproof.storage.store import NotFoundError

# The most bytes of files that this process reads for it; the executors of a cluster read more in less time.
READ_BYTES_MAX = 1 << 30
_Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class _State:
    """A file at a version, and how many rows it has, deleted or not; None: nobody counted them."""

    file: DeltaFile
    rows: int | None

    @property
    def live(self) -> int | None:
        """The number of its rows."""
        deleted = 0 if self.file.deleted is None else self.file.deleted.rows
        return None if self.rows is None else self.rows - deleted


class _NotHereError(Exception):
    """The changes are for `row_changes`."""


def changed_places(path: str, first: int, last: int, columns: Sequence[str], rows_max: int) -> pa.Table | None:
    """Return the rows that the versions after `first` up to `last` brought and took, with `CAME`: the net of them all.

    None if they are more than `rows_max`, or can't be had in this way.
    """
    try:
        return _read(path, (first, last), columns, rows_max)
    except (_NotHereError, LakeError, NotFoundError):
        return None


def _read(path: str, versions: tuple[int, int], columns: Sequence[str], rows_max: int) -> pa.Table | None:
    first, last = versions
    pairs = _pairs(Folder.at(path), first, last)
    if sum(_least(before, after) for before, after in pairs) > rows_max:
        return None
    touched = [before or after for before, after in pairs]
    if sum(state.file.bytes for state in touched if state is not None) > READ_BYTES_MAX:
        return None
    rows = DeltaRows.open(path, last)
    parts = [part for before, after in pairs for part in _changes(rows, before, after, columns)]
    schema = pa.schema([*(rows.schema.field(name) for name in columns), pa.field(CAME, pa.bool_())])
    return pa.Table.from_batches(parts, schema)


def _pairs(table: Folder, first: int, last: int) -> list[tuple[_State | None, _State | None]]:
    """Return each file that the commits touch, as it was and as it is."""
    before: dict[str, _State | None] = {}
    after: dict[str, _State | None] = {}
    for version in range(first + 1, last + 1):
        actions = read_actions(table, commit_name(version))
        files = [(kind, action) for kind, action in actions if kind in ("add", "remove")]
        # Files from before other columns have other names for them.
        if any(kind == "metaData" for kind, _ in actions) or any(a.get("dataChange") is False for _, a in files):
            raise _NotHereError
        # A file with another vector is removed and added again by the same commit.
        for kind, action in sorted(files, key=lambda pair: pair[0], reverse=True):
            state = _State(data_file(action), _count(action))
            before.setdefault(state.file.path, state if kind == "remove" else None)
            after[state.file.path] = state if kind == "add" else None
    return [(before[path], after[path]) for path in before]


def _count(action: Mapping[str, Any]) -> int | None:
    try:
        return int(json.loads(action.get("stats") or "{}")["numRecords"])
    except (ValueError, KeyError, TypeError):
        return None


def _least(before: _State | None, after: _State | None) -> int:
    """Return how many rows of a file came or went, at the least: what its vectors and its statistics count."""
    if before is not None and after is not None:
        counts = [0 if state.file.deleted is None else state.file.deleted.rows for state in (before, after)]
        return abs(counts[0] - counts[1])
    state = before or after
    if state is None:
        return 0
    if state.live is None:
        raise _NotHereError
    return state.live


def _changes(
    rows: DeltaRows, before: _State | None, after: _State | None, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    state = before or after
    if state is None:
        return
    if before is not None and after is not None:
        # Of a file that stays only what was deleted differs.
        old, new = (_deleted(rows, each) for each in (after, before))
    else:
        old, new = (_live(rows, each) for each in (before, after))
    for numbers, came in ((np.setdiff1d(new, old), True), (np.setdiff1d(old, new), False)):
        if len(numbers):
            if not columns:
                yield pa.record_batch([np.full(len(numbers), came)], [CAME])
                continue
            for batch, decoded in rows.at_places(state.file.path, numbers, columns):
                note_rows(decoded)
                yield batch.append_column(CAME, pa.array(np.full(batch.num_rows, came)))


def _deleted(rows: DeltaRows, state: _State) -> _Numbers:
    place = state.file.deleted
    return np.empty(0, np.int64) if place is None else deleted_rows(rows.table, place)


def _live(rows: DeltaRows, state: _State | None) -> _Numbers:
    """Return the numbers of a file's rows that are not deleted."""
    if state is None or state.rows is None:
        return np.empty(0, np.int64)
    return np.setdiff1d(np.arange(state.rows, dtype=np.int64), _deleted(rows, state))
