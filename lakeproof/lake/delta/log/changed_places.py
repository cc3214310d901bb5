"""The rows of a Delta table that came and went between two versions, by their places in files: from its log alone.

`lakeproof.views` and `lakeproof.lake.read` interpret the changes; `delta.versions` gives the rows to Spark, which reads many
of them.

    a file that came    its rows that are not deleted
    a file that stays   the difference of its two deletion vectors: of the row groups that have one of those rows
    a file that went    its rows that were not deleted

A file of before and a file of now have one row in two places if files were put together in between. So the changes are the
net of all versions unless files were put together between two of them that changed rows: then a row may come and go.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lakeproof.errors import LakeError
from lakeproof.hidden_columns import CAME
from lakeproof.lake.delta.arrow_rows import DeltaRows
from lakeproof.lake.delta.files.data_files import DeltaFile, VectorPlace, data_file, deleted_rows
from lakeproof.lake.delta.log.commits import BEGINS, Action, LogField, commit_name, physical_name, read_actions
from lakeproof.lake.delta.log.state import FileKey, TableState, file_key, is_same_file, read_state, table_shape
from lakeproof.lake.rows.change import Numbers, Unsupported, in_memory
from lakeproof.lake.spark.jvm import note_rows
from lakeproof.storage.folder import Folder
from lakeproof.storage.store import NotFoundError

# The most bytes of files that this process reads for it; the executors of a cluster read more in less time.
READ_BYTES_MAX = 1 << 30
_NONE: Numbers = np.empty(0, np.int64)


class ChangesUnavailableError(Exception):
    """The changes can't be read from the log; the message says why."""


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file of which rows came or went, with its deletion vectors then and now. `came`: it was added, False: removed.

    `came` is None if it stays. `partition`: the values of the table's partition columns.
    """

    file: DeltaFile
    then: VectorPlace | None
    now: VectorPlace | None
    came: bool | None
    partition: Mapping[str, str | None]

    @property
    def rows(self) -> int | None:
        """The rows that came or went, at the least: what its vectors and its statistics count; None: nobody counted."""
        then, now = (0 if place is None else place.rows for place in (self.then, self.now))
        if self.came is None:
            return abs(now - then)
        return None if self.file.rows is None else self.file.rows - (now if self.came else then)

    def deleted(self, table: Folder) -> tuple[Numbers, Numbers]:
        """Return the numbers of its deleted rows, then and now."""
        then, now = (_NONE if place is None else deleted_rows(table, place) for place in (self.then, self.now))
        return then, now

    def places(self, table: Folder) -> Iterator[tuple[bool, Numbers]]:
        """Yield the numbers of the rows that came, and of those that went; its rows must have been counted."""
        then, now = self.deleted(table)
        if self.came is not None:
            # Before it came, and after it went, it had no row.
            every = np.arange(self.file.rows or 0, dtype=np.int64)
            then, now = (every, now) if self.came else (then, every)
        came, went = np.setdiff1d(then, now), np.setdiff1d(now, then)
        yield from ((is_new, numbers) for is_new, numbers in ((True, came), (False, went)) if len(numbers))


@dataclass(frozen=True, slots=True)
class VersionChanges:
    """The changes of a table up to the version `last`; `is_net` as above.

    `packed` are the files that were put together in commits that change no data, and those that came in their place.
    `touched` has each path that the commits name, with its file in the first version (None: there was none).
    """

    last: TableState
    files: tuple[ChangedFile, ...]
    is_net: bool
    packed: tuple[tuple[DeltaFile, ...], tuple[DeltaFile, ...]] = ((), ())
    touched: Mapping[str, Action | None] = field(default_factory=dict)

    @classmethod
    def between(cls, path: str, first: int, last: int, columns: Sequence[str]) -> VersionChanges:
        """Read the commits after `first` up to `last`; raises ChangesUnavailableError if they don't tell.

        So it is if the log is not whole or begins again, or one of `columns` that the table had at `first` was another one
        then.
        """
        try:
            state, walk = read_state(path, last), _Walk()
            for version in range(first + 1, last + 1):
                actions = read_actions(Folder.at(path), commit_name(version))
                _check_goes_on(version, actions)
                walk.take(actions)
            if walk.has_metadata:
                _check_same(table_shape(path, first).fields, state.fields, columns)
        except (LakeError, NotFoundError) as error:
            reason = error.reason if isinstance(error, LakeError) else "a commit is missing"
            raise ChangesUnavailableError(f"its log does not tell its changes ({reason})") from error
        if not walk.leads_to(state):
            raise ChangesUnavailableError(f"its log does not lead to what version {last} has")
        packed = tuple(walk.packed[0]), tuple(walk.packed[1])
        return cls(state, tuple(walk.files()), walk.is_net, packed, walk.touched)

    def files_before(self) -> frozenset[FileKey]:
        """Return all files of the first version: those of the last, with the commits taken back."""
        untouched = (action for path, action in self.last.files.items() if path not in self.touched)
        before = (action for action in self.touched.values() if action is not None)
        return frozenset(map(file_key, [*untouched, *before]))

    def collect(
        self,
        columns: Sequence[str],
        rows_max: int,
        bytes_max: int = sys.maxsize,
        files_bytes_max: int | None = READ_BYTES_MAX,
    ) -> pa.Table | None:
        """Return the rows with `CAME`; None if they, or the files that have them, are more, or can't be read here."""
        counts = [file.rows for file in self.files]
        if None in counts or sum(count or 0 for count in counts) > rows_max:
            return None
        if files_bytes_max is not None and sum(file.file.bytes for file in self.files) > files_bytes_max:
            return None
        try:
            rows = DeltaRows.open(self.last.path, self.last.version, files=())
            schema = rows.schema_of(columns).append(pa.field(CAME, pa.bool_()))
            came_and_went = (part for file in self.files for part in _rows_of(rows, file, columns))
            parts = in_memory(came_and_went, bytes_max, "there are more rows")
        except (LakeError, NotFoundError, Unsupported):
            return None
        return pa.Table.from_batches(parts, schema)


def changed_places(path: str, first: int, last: int, columns: Sequence[str], rows_max: int) -> pa.Table | None:
    """Return the rows that the versions after `first` up to `last` brought and took, with `CAME`: the net of them all.

    None if they are more than `rows_max`, or can't be had in this way.
    """
    try:
        changes = VersionChanges.between(path, first, last, columns)
    except ChangesUnavailableError:
        return None
    return changes.collect(columns, rows_max) if changes.is_net else None


class _Walk:
    """The files that commits touch, each as it was and as it is, while commits are added."""

    def __init__(self) -> None:
        self._before = dict[str, Action | None]()
        self._after = dict[str, Action | None]()
        self.touched = dict[str, Action | None]()
        self._ended = list[ChangedFile]()
        self.packed = list[DeltaFile](), list[DeltaFile]()
        self._changed = self._put_together = False
        self.is_net, self.has_metadata = True, False

    def take(self, actions: Sequence[tuple[str, Action]]) -> None:
        # What goes before what comes: a file with another vector is removed and added again by the same commit.
        files = [(kind, action) for which in ("remove", "add") for kind, action in actions if kind == which]
        data = [(kind, action) for kind, action in files if action.get("dataChange") is not False]
        for kind, action in files:
            self.touched.setdefault(action["path"], action if kind == "remove" else None)
            if action.get("dataChange") is False:
                self.packed[kind == "add"].append(data_file(action))
                if kind == "remove" and action["path"] in self._before:
                    # Put together with others: what comes under this name is another file.
                    self._ended += self._changed_file(action["path"])
        self.has_metadata |= any(kind == "metaData" for kind, _ in actions)
        self.is_net &= not (data and self._changed and self._put_together)
        self._changed |= bool(data)
        self._put_together |= self._changed and len(files) > len(data)
        for kind, action in data:
            self._before.setdefault(action["path"], action if kind == "remove" else None)
            self._after[action["path"]] = action if kind == "add" else None

    def leads_to(self, state: TableState) -> bool:
        """True if the files that were touched are in `state` as the commits have left them."""
        return all(
            path not in state.files if after is None else is_same_file(state.files.get(path), after)
            for path, after in self._after.items()
        )

    def files(self) -> list[ChangedFile]:
        return [*self._ended, *(file for path in [*self._before] for file in self._changed_file(path))]

    def _changed_file(self, path: str) -> Iterator[ChangedFile]:
        before, after = self._before.pop(path), self._after.pop(path)
        action = after or before
        if action is not None:
            then, now = (None if each is None else data_file(each).deleted for each in (before, after))
            came = None if before is not None and after is not None else after is not None
            yield ChangedFile(data_file(action), then, now, came, action.get("partitionValues") or {})


def _check_goes_on(version: int, actions: Sequence[tuple[str, Action]]) -> None:
    """Raise ChangesUnavailableError at a commit with which a log begins again: what went with it, it does not name."""
    if any(kind == "commitInfo" and action.get("operation") == BEGINS for kind, action in actions):
        raise ChangesUnavailableError(f"its log begins again with version {version}")


def _check_same(then: Sequence[LogField], now: Sequence[LogField], columns: Sequence[str]) -> None:
    """Raise ChangesUnavailableError if one of the columns that the table had was another one then, by name or type."""
    old, new = ({f["name"]: (physical_name(f), f["type"]) for f in fields} for fields in (then, now))
    other = next((name for name in columns if name in old and old[name] != new.get(name)), None)
    if other is not None:
        raise ChangesUnavailableError(f"its column {other} was another one")


def _rows_of(rows: DeltaRows, file: ChangedFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for came, numbers in file.places(rows.table):
        if not columns:
            yield pa.record_batch([np.full(len(numbers), came)], [CAME])
            continue
        for batch, decoded in rows.at_places(file.file.path, numbers, columns, file.file.rows):
            note_rows(decoded)
            if batch.num_rows:
                yield batch.append_column(CAME, pa.array(np.full(batch.num_rows, came)))
