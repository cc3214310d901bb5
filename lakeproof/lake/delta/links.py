"""Landed Parquet files under a second name in a Delta table's folder, verified, and a check that the table can have them.

Nothing is committed here (`link_commit`), and no JVM is needed; bounds and counts belong to `file_statistics`.

    place     a hard link (a copy on another file system) under a name that no other file of the table ever has, read once
              and compared with the checksum that its writer recorded, with Hadoop's checksums beside it
    mismatch  the reason why a table must not have the file: Delta finds a file's columns by their physical names alone, and
              reads what it finds

A link that no commit names yet is nobody's: after a crash it is found again, or removed with the other files that no kept
version needs. A damaged file is never placed: afterwards no reader would notice, since links share their bytes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeproof.errors import BEGIN_AGAIN, LakeError
from lakeproof.hidden_columns import HIDDEN_PREFIX
from lakeproof.lake.delta.file_statistics import has_float_bounds
from lakeproof.storage.parquet import SPARK_VERSION_KEY

_READ_BYTES = 1 << 20
# Hadoop's local file system compares each piece of this size with a CRC-32 in the file `.<name>.crc`.
_CRC_PIECE = 512
_CRC_HEAD = b"crc\0" + _CRC_PIECE.to_bytes(4, "big")
_CRC_BYTES = 4
# The errors of `link()` after which a copy is as good: another file system, or one without links, or too many of them.
_CANT_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP})
_TEMPORARY = ".lp-"
_REMEDY = f"restore the file from a backup, or {BEGIN_AGAIN}"
_CALENDAR = ("date", "timestamp")
_PLAIN_TYPES: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", "UTC"): "timestamp",
}


@dataclass(frozen=True, slots=True)
class LandedFile:
    """A finished file at `place`, as the document that names it describes it."""

    place: Path
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A file in a table's folder that no commit names yet; `linked`: it shares its bytes with the landed file."""

    name: str
    footer: pq.FileMetaData
    bytes: int
    modified_ms: int
    linked: bool


def place(landed: LandedFile, folder: Path, name: str) -> PlacedFile:
    """Give the file a second name in a table's folder, and return it verified; the same again if it has been placed.

    Raises LakeError if the file is missing, or not what its writer recorded: then nothing stays in the folder.
    """
    target = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    try:
        checksums = _give_name(landed, target)
        footer = pq.read_metadata(target)
        if footer.num_rows != landed.rows:
            raise _damaged(landed, f"it has {footer.num_rows} rows, its manifest says {landed.rows}")
    except (LakeError, pa.ArrowInvalid):
        remove_placed(folder, name)
        raise
    _write_checksums(target, checksums)
    status, source = target.stat(), landed.place.stat()
    linked = os.path.samestat(status, source)
    return PlacedFile(name, footer, status.st_size, int(status.st_mtime * 1000), linked)


def remove_placed(folder: Path, name: str) -> None:
    """Take the name away again: no commit names it."""
    for file in (_checksum_file(folder / name), folder / name):
        file.unlink(missing_ok=True)


def mismatch(footer: pq.FileMetaData, fields: Sequence[Mapping[str, Any]], required: Sequence[str]) -> str | None:
    """Return why a table with these fields (of its schema text) must not have the file, None if it may.

    `required` are the table's columns that the file must have; all others of the table that it lacks read as NULL.
    """
    types = {field.name: _type_of(field.type) for field in footer.schema.to_arrow_schema()}
    names = {field["name"]: _physical(field) for field in fields}
    missing = [name for name in required if names.get(name) not in types]
    if missing:
        return f"the table's column {missing[0]} has another name in the table's files"
    more = [name for name in types if name not in names and not name.startswith(HIDDEN_PREFIX)]
    if more:
        # It would be read if the table got a column of this name.
        return f"the file has a column {more[0]}, and the table has none"
    for field in fields:
        name, physical = field["name"], names[field["name"]]
        if physical not in types:
            continue
        if physical != name:
            return f"the file has a column {physical}, which is the table's {name}"
        if types[name] != field["type"]:
            return f"column {name} is {types[name]} in the file and {field['type']} in the table"
    if any(kind in json.dumps(types) for kind in _CALENDAR) and not _names_spark(footer):
        return "the file has dates or times, and does not name Spark's version"
    return "the file has bounds of floats, which leave NaN out" if has_float_bounds(footer) else None


def _names_spark(footer: pq.FileMetaData) -> bool:
    return SPARK_VERSION_KEY.encode() in (footer.metadata or {})


def _physical(field: Mapping[str, Any]) -> str:
    return str(field.get("metadata", {}).get("delta.columnMapping.physicalName", field["name"]))


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


def _give_name(landed: LandedFile, target: Path) -> bytes:
    """Return Hadoop's checksums of the file, which has the name now and is as its writer recorded."""
    try:
        os.link(landed.place, target)
    except FileExistsError:
        # An attempt before this one was killed after the link; what is not this file is no commit's either.
        with suppress(LakeError):
            return _verified(landed, target)
        target.unlink()
        return _give_name(landed, target)
    except FileNotFoundError:
        raise _damaged(landed, "it is missing") from None
    except OSError as error:
        if error.errno not in _CANT_LINK:
            raise
        _copy(landed.place, target)
    return _verified(landed, target)


def _copy(source: Path, target: Path) -> None:
    """Copy the file, durably: under the name it is whole or not there."""
    temporary = target.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}")
    try:
        shutil.copyfile(source, temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _verified(landed: LandedFile, file: Path) -> bytes:
    """Read the file once; return Hadoop's checksums of it, or raise LakeError if it is not as its writer recorded."""
    digest, length, checksums = hashlib.sha256(), 0, bytearray(_CRC_HEAD)
    for data in _blocks(file):
        digest.update(data)
        length += len(data)
        for start in range(0, len(data), _CRC_PIECE):
            checksums += zlib.crc32(data[start : start + _CRC_PIECE]).to_bytes(_CRC_BYTES, "big")
    if length != landed.bytes:
        raise _damaged(landed, f"it has {length} bytes, its manifest says {landed.bytes}")
    if digest.hexdigest() != landed.sha256:
        raise _damaged(landed, "its checksum is not the one its manifest says")
    return bytes(checksums)


def _blocks(file: Path) -> Iterator[memoryview]:
    with file.open("rb", buffering=0) as opened:
        buffer = memoryview(bytearray(_READ_BYTES))
        while length := _fill(opened, buffer):
            yield buffer[:length]


def _fill(opened: Any, buffer: memoryview) -> int:
    """Fill the buffer, so that each block but the last is a whole number of pieces."""
    length = 0
    while length < len(buffer) and (read := opened.readinto(buffer[length:])):
        length += read
    return length


def _checksum_file(file: Path) -> Path:
    return file.with_name(f".{file.name}.crc")


def _write_checksums(file: Path, checksums: bytes) -> None:
    """Put Hadoop's checksums beside the file: Spark compares every piece that it reads with them, as with its own files."""
    temporary = file.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}")
    temporary.write_bytes(checksums)
    temporary.replace(_checksum_file(file))


def _damaged(landed: LandedFile, reason: str) -> LakeError:
    return LakeError(f"landed file {landed.place}", reason, _REMEDY)
