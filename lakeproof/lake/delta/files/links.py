"""Files in a Delta table's folder that no commit names yet: landed ones under a second name, verified, and new ones.

Nothing is committed here (`link_commit`), and no JVM is needed; bounds and counts belong to `statistics`.

    place       a link (a copy, if the store has none) under a name that no other file of the table ever has, read once and
                compared with the checksum that its writer recorded, with Hadoop's checksums beside it
    mismatch    the reason why a table must not have the file: Delta finds a file's columns by their physical names alone,
                and reads what it finds
    new files   rows that this process reads or holds, in files like landed ones: the same types and encodings, bounds for
                the same kinds of columns, and Hadoop's checksums beside them. Memory: one row group of rows, and one batch

A link that no commit names yet is garbage: after a crash the next attempt finds it again, or maintenance removes it with all
files that no kept version needs. A damaged file is never placed: no reader would notice it, since links share their bytes. A
new file's name is no later attempt's, and one whose writing ends in an error is removed. Nothing is synced here: the cycle
syncs what its commits name before a cut names them.
"""

from __future__ import annotations

import hashlib
import json
import uuid
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from lakeproof.errors import BEGIN_AGAIN, InvariantError, LakeError
from lakeproof.failpoints import failpoint
from lakeproof.hidden_columns import COMMIT_TIME, HIDDEN_PREFIX, LSN, OP, XID
from lakeproof.lake.delta.files.statistics import has_float_bounds
from lakeproof.lake.delta.log.commits import LogField, now_ms, physical_names
from lakeproof.landing.segments.manifest import SegmentFile
from lakeproof.landing.segments.segment import ROW_GROUP_BYTES, ROW_GROUP_ROWS
from lakeproof.snapshot.state import SnapshotFile
from lakeproof.storage.folder import Folder
from lakeproof.storage.open import store_of
from lakeproof.storage.parquet import SPARK_VERSION_KEY, bounded, open_parquet, parquet_file
from lakeproof.storage.store import AlreadyExistsError, NewFile, NotFoundError, Store
from lakeproof.values.types import LAKE_TYPES

_READ_BYTES = 1 << 20
# Hadoop's local file system compares each piece of this size with a CRC-32 in the file `.<name>.crc`.
_CRC_PIECE = 512
_CRC_HEAD = b"crc\0" + _CRC_PIECE.to_bytes(4, "big")
_CRC_BYTES = 4
# How the names of landed files in a table's folder begin.
LINKED = "cycle-"
_REMEDY = f"restore the file from a backup, or {BEGIN_AGAIN}"
_CALENDAR = ("date", "timestamp")
_PLAIN_TYPES: Mapping[pa.DataType, str] = {each.arrow(): each.in_log for each in LAKE_TYPES.values()}


@dataclass(frozen=True, slots=True)
class LandedFile:
    """A finished file at a path or URL, as the document that names it describes it."""

    url: str
    rows: int
    bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """The last part of its URL."""
        return self.url.rpartition("/")[2]


def landed_file(url: str, file: SegmentFile | SnapshotFile) -> LandedFile:
    """Return the file at `url` as its document describes it."""
    return LandedFile(url, file.rows, file.bytes, file.sha256)


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A file in a table's folder that no commit names yet."""

    name: str
    footer: pq.FileMetaData
    bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Twin:
    """The same landed file in another table's folder, where it was compared."""

    table: Folder
    file: PlacedFile


def place(landed: LandedFile, table: Folder, name: str, twin: Twin | None) -> PlacedFile:
    """Give the file a second name in a table's folder, and return it verified; the same again if it has been placed.

    If the names share bytes with those of a `twin`, they are not read again. Raises LakeError if the file is missing, or not
    what its writer recorded. Whatever is raised, a full disk's error too, nothing stays in the folder (`remove_placed`).
    """
    store, key = table.store, table.key_of(name)
    try:
        if twin is not None and _share(twin, store, key):
            return PlacedFile(name, twin.file.footer, landed.bytes, now_ms())
        checksums = _give_name(landed, store, key)
        failpoint("links.after_name")
        footer = _footer(landed, store, key)
        _put_checksums(store, key, checksums)
    except BaseException:
        remove_placed(table, name)
        raise
    return PlacedFile(name, footer, landed.bytes, now_ms())


def _share(twin: Twin, store: Store, key: str) -> bool:
    """Give the twin's bytes, and Hadoop's checksums of them, another name; False if the store would copy them."""
    compared = twin.table.key_of(twin.file.name)
    beside, checksums = store.checksum_key(key), store.checksum_key(compared)
    if beside is None or checksums is None:
        return False
    for source, target in ((compared, key), (checksums, beside)):
        # An attempt before this one may have been killed after a link.
        store.delete(target)
        if not store.link(source, target):
            return False
        failpoint("links.after_name")
    return True


def _footer(landed: LandedFile, store: Store, key: str) -> pq.FileMetaData:
    with parquet_file(store, key) as file:
        footer = file.metadata
    if footer.num_rows != landed.rows:
        raise _damaged(landed, f"it has {footer.num_rows} rows, its manifest says {landed.rows}")
    return footer


def remove_placed(table: Folder, name: str) -> None:
    """Take the name away again: no commit names it.

    A landed file stays on a store whose holders may sleep. Every attempt of a cycle gives it the same name, so whoever
    followed this process, while it slept, may have committed it. Maintenance removes it if nobody has.
    """
    if name.startswith(LINKED) and table.store.holders_may_sleep:
        return
    key = table.key_of(name)
    beside = table.store.checksum_key(key)
    if beside is not None:
        table.store.delete(beside)
    table.store.delete(key)


def mismatch(footer: pq.FileMetaData, fields: Sequence[LogField], required: Mapping[str, str]) -> str | None:
    """Return why a table with these fields (of its schema text) must not have the file, None if it may.

    `required` are the table's columns that the file must have, with their names in it; all others of the table that it lacks
    read as NULL.
    """
    types = {field.name: _type_of(field.type) for field in footer.schema.to_arrow_schema()}
    names = physical_names(fields)
    missing = [name for name in required if names.get(name) not in types]
    if missing:
        return f"the file has no column {names.get(missing[0], missing[0])}, which it must have"
    more = [name for name in types if name not in names.values() and not name.startswith(HIDDEN_PREFIX)]
    if more:
        # It would be read if the table got a column of this name.
        return f"the file has a column {more[0]}, and the table has none"
    for field in fields:
        name, physical = field["name"], names[field["name"]]
        if physical not in types:
            continue
        if physical != required.get(name, name):
            return f"the file has a column {physical}, which is the table's {name}"
        if types[physical] != field["type"]:
            return f"column {name} is {types[physical]} in the file and {field['type']} in the table"
    names_spark = SPARK_VERSION_KEY.encode() in (footer.metadata or {})
    if any(kind in json.dumps(types) for kind in _CALENDAR) and not names_spark:
        return "the file has dates or times, and does not name Spark's version"
    return "the file has bounds of floats, which leave NaN out" if has_float_bounds(footer) else None


def renamed(fields: Sequence[LogField], names: Mapping[str, str]) -> str | None:
    """Return why files that have these columns, each under the name given, can't be the table's, None if they can."""
    physical = physical_names(fields)
    other = next((name for name, in_file in names.items() if physical.get(name) != in_file), None)
    return None if other is None else f"the table's column {other} has another name in the table's files"


def _type_of(arrow: pa.DataType) -> Any:
    """Return the type as Delta's schema text has it; Arrow's own name for a type that no column has."""
    if pa.types.is_dictionary(arrow):
        # Arrow's way to hold the values; the column's type in Parquet is theirs.
        return _type_of(arrow.value_type)
    if pa.types.is_list(arrow):
        return {"type": "array", "elementType": _type_of(arrow.value_type), "containsNull": True}
    if pa.types.is_decimal128(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    return _PLAIN_TYPES.get(arrow, str(arrow))


def _give_name(landed: LandedFile, store: Store, key: str) -> bytes:
    """Return Hadoop's checksums of the file, which has the key now and is as its writer recorded."""
    source_store, source = store_of(landed.url)
    if source_store.url("") != store.url(""):
        raise InvariantError(landed.url, f"it is not in the store of {store.url(key)}", "report this")
    try:
        store.link(source, key)
    except AlreadyExistsError:
        # An attempt before this one was killed after the link; what is not this file is no commit's either.
        with suppress(LakeError):
            return _verified(landed, store, key)
        store.delete(key)
        return _give_name(landed, store, key)
    except NotFoundError:
        raise _damaged(landed, "it is missing") from None
    return _verified(landed, store, key)


def _verified(landed: LandedFile, store: Store, key: str) -> bytes:
    """Read the file once; return Hadoop's checksums of it, or raise LakeError if it is not as its writer recorded."""
    digest, length, checksums = hashlib.sha256(), 0, bytearray(_CRC_HEAD)
    with store.open(key) as opened:
        for data in _blocks(opened):
            digest.update(data)
            length += len(data)
            _add_checksums(checksums, data)
    if length != landed.bytes:
        raise _damaged(landed, f"it has {length} bytes, its manifest says {landed.bytes}")
    if digest.hexdigest() != landed.sha256:
        raise _damaged(landed, "its checksum is not the one its manifest says")
    return bytes(checksums)


def _add_checksums(checksums: bytearray, data: memoryview) -> None:
    for start in range(0, len(data), _CRC_PIECE):
        checksums += zlib.crc32(data[start : start + _CRC_PIECE]).to_bytes(_CRC_BYTES, "big")


def _blocks(opened: Any) -> Iterator[memoryview]:
    """Give the bytes in blocks of one size, so that each but the last is a whole number of pieces."""
    buffer = memoryview(bytearray(_READ_BYTES))
    while length := opened.readinto(buffer):
        yield buffer[:length]


def write_checksums(store: Store, key: str) -> None:
    """Put Hadoop's checksums beside a file that this process has written, if it is a store whose files have them."""
    if store.checksum_key(key) is None:
        return
    checksums = bytearray(_CRC_HEAD)
    with store.open(key) as opened:
        for data in _blocks(opened):
            _add_checksums(checksums, data)
    _put_checksums(store, key, bytes(checksums))


def _put_checksums(store: Store, key: str, checksums: bytes) -> None:
    """Put Hadoop's checksums beside the file: Spark compares every piece that it reads with them, as with its own files."""
    beside = store.checksum_key(key)
    if beside is not None:
        # An attempt that was killed may have left others.
        store.delete(beside)
        store.put_if_absent(beside, checksums, durable=False)
        failpoint("links.after_checksums")


def _damaged(landed: LandedFile, reason: str) -> LakeError:
    return LakeError(f"landed file {landed.url}", reason, _REMEDY)


# One file per this many rows, so that a file can be read, and written anew, by one task.
ROWS_PER_FILE = 500_000
LocalRows: TypeAlias = Iterable[pa.Table]
_REPEATED = frozenset({LSN, OP, XID, COMMIT_TIME})


def write_new_files(rows: LocalRows, folder: Folder, prefix: str, statistics: Collection[str]) -> Iterator[PlacedFile]:
    """Write rows of one schema into files of a table's folder, under new names that begin with `prefix`, and give each.

    `statistics`: the columns that get bounds, if their type has bounds that others can rely on.
    """
    groups = _groups(rows)
    for first in groups:
        yield _write_file(first, groups, folder, f"{prefix}{uuid.uuid4().hex}.parquet", statistics)


def _write_file(
    first: pa.Table, others: Iterator[pa.Table], folder: Folder, name: str, statistics: Collection[str]
) -> PlacedFile:
    store, key = folder.store, folder.key_of(name)
    file = store.create(key, durable=False)
    try:
        footer = _write_rows(first, others, file, statistics)
        file.finish()
        write_checksums(store, key)
        return PlacedFile(name, footer, file.bytes_written, now_ms())
    except BaseException:
        # On a full disk each attempt would leave a file more.
        file.abandon()
        remove_placed(folder, name)
        raise


def _write_rows(
    first: pa.Table, others: Iterator[pa.Table], file: NewFile, statistics: Collection[str]
) -> pq.FileMetaData:
    """Write the rows of one file, and return its footer."""
    chosen = [name for name in bounded(first.schema) if name in statistics]
    repeated = [name for name in first.schema.names if name in _REPEATED]
    written, footer = first.num_rows, list[pq.FileMetaData]()
    with open_parquet(file, first.schema, dictionaries=repeated, statistics=chosen, footer=footer) as writer:
        writer.write_table(first)
        while written < ROWS_PER_FILE and (group := next(others, None)) is not None:
            writer.write_table(group)
            written += group.num_rows
    return footer[0]


def _groups(rows: LocalRows) -> Iterator[pa.Table]:
    """Give the rows in row groups; none for no rows."""
    # Of a file few of whose rows are left there are thousands of small parts: no loop over all of them for each one.
    waiting, count, size = list[pa.Table](), 0, 0
    for part in rows:
        if not part.num_rows:
            continue
        waiting.append(part)
        count, size = count + part.num_rows, size + part.nbytes
        if count >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting, count, size = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting)
