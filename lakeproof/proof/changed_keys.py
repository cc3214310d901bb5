"""The lake's side of a proof of what changed: the keys touched since its last proof, and the rows under them now; in Arrow.

    history's log   files that came since ─► the keys of their rows: what the stream, a copy or a repair has touched
    current's log   files and vectors that changed since ─► the keys of rows that came or went, whoever has made the commit
    packed files    rows that were put together ─► their sums before and after, which must be the same
    current         the rows under all these keys, wherever they are

A row whose place no commit has changed is what it was when it was proven, as long as its file is there, with the bytes that
the log says, and its vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakeproof.errors import UnreadableRowsError
from lakeproof.hidden_columns import OP, TEXT
from lakeproof.lake.columns import in_lake, merge_key
from lakeproof.lake.delta.arrow_rows import DeltaRows, NotInArrowError
from lakeproof.lake.delta.files.data_files import DeltaFile, data_file, live_rows
from lakeproof.lake.delta.log.changed_places import ChangesUnavailableError, VersionChanges
from lakeproof.lake.delta.log.state import TableState, read_state
from lakeproof.lake.delta.search import find_places
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.rows.change import distinct_rows
from lakeproof.lake.rows.hashed import BucketSums, RowsOfBatch, of_kind
from lakeproof.names import TableName
from lakeproof.postgres.copying.keys import Key
from lakeproof.proof.compare import Buckets, ProofRow
from lakeproof.proof.lake.in_arrow import (
    TooLargeError,
    buckets_of,
    decoded_keys,
    proof_rows,
    read_columns,
    read_rows,
)
from lakeproof.proof.record import Basis, commit_digest, version_digest
from lakeproof.schema import SchemaVersion
from lakeproof.storage.folder import Folder
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import NotFoundError
from lakeproof.values.exact_kinds import key_columns
from lakeproof.values.exact_texts import HiddenTexts, exact_texts

# So many keys of a table are compared by themselves; of more, the table is compared whole.
KEYS_MAX = 100_000
# Each has a few rows that came and went.
_ROWS_MAX = 4 * KEYS_MAX
# Rows of so many bytes are read of files that were put together, before and after.
PACKED_BYTES_MAX = 256 << 20
_ANOTHER_LOG = "its log is not the one that was proven"
# Kinds of history's rows after which the table is not what it was with some keys changed.
_ANEW = frozenset({"truncate", "reset", "gap", "snapshot"})


class NotByKeysError(Exception):
    """A table that is to be compared whole; the message says why."""


@dataclass(frozen=True, slots=True)
class ChangedSide:
    """A table's current at a cut, with the keys that were touched since its basis; `texts` are these as a proof has them."""

    state: TableState
    version: SchemaVersion
    keys: pa.Table
    texts: Sequence[Key]

    @classmethod
    def since(cls, basis: Basis, lake: SourceLake, table: TableName, cut_table: CutTable) -> ChangedSide:
        """Find the keys that were touched since `basis`.

        Raises NotByKeysError, UnreadableRowsError if a file is not there as the log has it, LogGapError.
        """
        version = in_lake(cut_table.version)
        current, history = (lake.url(key) for key in (lake.paths.current(table), lake.paths.history(table)))
        if cut_table.current_version < basis.current_version or cut_table.history_version < basis.history_version:
            raise NotByKeysError(_ANOTHER_LOG)
        if commit_digest(history, basis.history_version) != basis.history_commit:
            raise NotByKeysError(_ANOTHER_LOG)
        state = read_state(current, cut_table.current_version)
        _check_files(state)
        names = [TEXT] if version.is_bag else [*dict.fromkeys([*merge_key(version), *version.key, TEXT])]
        parts = list[pa.Table]()
        if basis.history_version < cut_table.history_version:
            parts.append(_of_history(history, basis.history_version, cut_table.history_version, names))
        changes = _changes(current, basis.current_version, cut_table.current_version, names)
        if version_digest(current, basis.current_version, changes.files_before()) != basis.current_commit:
            raise NotByKeysError(_ANOTHER_LOG)
        if basis.current_version < cut_table.current_version:
            _check_packed(changes, version, cut_table.row_bytes)
            parts.append(_collected(changes, names))
        rows = pa.concat_tables(part.select(names) for part in parts) if parts else None
        if rows is None or not rows.num_rows:
            return cls(state, version, pa.table({}), ())
        if version.is_bag:
            raise NotByKeysError("it has no key, and rows of it changed")
        return cls(state, version, distinct_rows(rows.select(merge_key(version))), _texts(version, rows))

    @property
    def rows_in_log(self) -> int | None:
        """The number of the table's rows, by its log."""
        return live_rows(self._files)

    def rows(self) -> list[ProofRow]:
        """Return the rows under the keys; raises UnreadableRowsError, and NotByKeysError if they can't be read here."""
        try:
            delta = DeltaRows.open(self.state.path, self.state.version, files=self._files)
        except NotInArrowError as error:
            raise NotByKeysError(error.reason) from None
        places = find_places(self.state, merge_key(self.version), self.keys)
        names, rows = read_columns(self.version, delta), list[ProofRow]()
        for path, numbers in places.rows.items():
            for batch, _ in delta.at_places(data_file(self.state.files[path]).path, numbers, names):
                if batch.num_rows:
                    rows += proof_rows(self.version, RowsOfBatch.of(self.version, batch))
        return rows

    @property
    def _files(self) -> list[DeltaFile]:
        return [data_file(entry) for entry in self.state.files.values()]


def _check_files(state: TableState) -> None:
    """Raise UnreadableRowsError if a file of the version is missing, or has other bytes than the log says."""
    table, remedy = Folder.at(state.path), "restore it from a backup"
    vectors = dict[str, None]()
    for file in map(data_file, state.files.values()):
        try:
            size = table.store.size(table.key_of(file.path))
        except NotFoundError:
            raise UnreadableRowsError(table.url_of(file.path), "it is missing", remedy) from None
        if size != file.bytes:
            raise UnreadableRowsError(table.url_of(file.path), f"it has {size:,} of {file.bytes:,} bytes", remedy)
        if file.vector is not None:
            vectors[file.vector] = None
    for vector in vectors:
        try:
            table.store.size(table.key_of(vector))
        except NotFoundError:
            raise UnreadableRowsError(table.url_of(vector), "a deletion vector is missing", remedy) from None


def _changes(path: str, first: int, last: int, names: Sequence[str]) -> VersionChanges:
    try:
        return VersionChanges.between(path, first, last, names)
    except ChangesUnavailableError as error:
        raise NotByKeysError(str(error)) from None


def _collected(changes: VersionChanges, names: Sequence[str]) -> pa.Table:
    rows = changes.collect(names, _ROWS_MAX, files_bytes_max=None)
    if rows is None:
        raise NotByKeysError(f"more than {_ROWS_MAX:,} rows changed, or they can't be read")
    return rows


def _of_history(path: str, first: int, last: int, names: Sequence[str]) -> pa.Table:
    """Return the rows that came into history."""
    rows = _collected(_changes(path, first, last, names), [*names, OP])
    if not _ANEW.isdisjoint(rows.column(OP).unique().to_pylist()):
        raise NotByKeysError("it was truncated, or copied anew")
    return rows


def _check_packed(changes: VersionChanges, version: SchemaVersion, row_bytes: int) -> None:
    """Raise NotByKeysError unless the files that were put together have the rows of those in whose place they came."""
    went, came = changes.packed
    if sum(file.bytes for file in (*went, *came)) > PACKED_BYTES_MAX:
        raise NotByKeysError("files of more bytes were put together than are read again")
    try:
        sums = [_sums(changes, files, version, row_bytes) for files in (went, came)]
    except TooLargeError:
        raise NotByKeysError("files of more bytes were put together than are read again") from None
    if sums[0] != sums[1]:
        raise NotByKeysError("files were put together, and have other rows since")


def _sums(changes: VersionChanges, files: Sequence[DeltaFile], version: SchemaVersion, row_bytes: int) -> Buckets:
    sums = BucketSums(version, 1)
    if files:
        delta = DeltaRows.open(changes.last.path, changes.last.version, files=files)
        for batch in read_rows(delta, read_columns(version, delta), row_bytes, PACKED_BYTES_MAX):
            sums.add(RowsOfBatch.of(version, batch))
    return buckets_of(sums)


def _texts(version: SchemaVersion, rows: pa.Table) -> Sequence[Key]:
    """Return the exact texts of the keys of rows, each key once."""
    hidden = HiddenTexts.of(rows.column(TEXT).combine_chunks())
    columns = [
        exact_texts(c, of_kind(rows.column(c.name).combine_chunks(), c), hidden).cast(pa.binary())
        for c in key_columns(version)
    ]
    table = distinct_rows(pa.table({str(number): column for number, column in enumerate(columns)}))
    if table.num_rows > KEYS_MAX:
        raise NotByKeysError(f"more than {KEYS_MAX:,} keys changed")
    keys = list[Key]()
    for key in decoded_keys(table.columns):
        whole = tuple(text for text in key if text is not None)
        if len(whole) < len(key):
            raise NotByKeysError("a key has NULL in it")
        keys.append(whole)
    return keys
