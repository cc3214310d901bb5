"""Data files as a log names them, and their deletion vectors: one file for a commit, with a bitmap for each data file.

Reading rows belongs to `arrow_rows`, deciding which rows go to the callers.

    offset  bytes  value
    0       1      1, the form's version
    then for each vector, at the `offset` that its action has:
            4      the length of magic number and bitmap, big endian
            4      1681511377, little endian
            n      the bitmap, in Roaring's portable 64-bit form
            4      CRC-32 of magic number and bitmap, big endian
"""

from __future__ import annotations

import base64
import json
import struct
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from lakeproof.errors import UnreadableRowsError
from lakeproof.lake.delta.log.commits import Action
from lakeproof.lake.rows.change import Numbers
from lakeproof.storage.folder import Folder
from lakeproof.storage.parquet import parquet_file
from lakeproof.storage.store import NotFoundError

MAGIC = 1_681_511_377
_VERSION = b"\x01"


def write_vectors(table: Folder, vectors: Sequence[Numbers]) -> list[Action]:
    """Write one file with a vector for each sorted array of row numbers; return the `deletionVector` of each.

    It is durable with the commit that names it (`sync_commits`). Nothing is written for no vectors.
    """
    if not vectors:
        return []
    unique = uuid.uuid4()
    data, places = bytearray(_VERSION), list[Action]()
    for rows in vectors:
        body = struct.pack("<i", MAGIC) + BitMap64(rows.astype(np.uint64)).serialize()
        place = {
            "storageType": "u",
            "pathOrInlineDv": in_base_85(unique.bytes),
            "offset": len(data),
            "sizeInBytes": len(body),
            "cardinality": len(rows),
        }
        places.append(place)
        data += struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    table.store.put_if_absent(table.key_of(f"deletion_vector_{unique}.bin"), bytes(data), durable=False)
    return places


_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
# Python's own Base85 has other letters for the same numbers, five of them none of Z85's.
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_PYTHONS_ALONE = ";_`|~"
_TO_B85, _TO_Z85 = str.maketrans(_Z85 + _PYTHONS_ALONE, _B85 + "\0" * len(_PYTHONS_ALONE)), str.maketrans(_B85, _Z85)
_UUID_LETTERS = 20


@dataclass(frozen=True, slots=True)
class VectorPlace:
    """The place of a deletion vector: its file and offset there; or its bytes in base 85, if it stands in the log."""

    file: str | None
    offset: int
    inline: str
    rows: int


@dataclass(frozen=True, slots=True)
class DeltaFile:
    """A file of rows, its bytes, and the place of its deletion vector, if it has one; paths below the table.

    `rows` are those that the file has without the vector, None if the log does not say.
    """

    path: str
    bytes: int
    deleted: VectorPlace | None
    rows: int | None = field(compare=False)

    @property
    def vector(self) -> str | None:
        """The file of its deletion vector; None if it has none, or one that stands in the log."""
        return None if self.deleted is None else self.deleted.file

    @property
    def live_rows(self) -> int | None:
        """The number of its rows that are not deleted; None if the log does not say."""
        return None if self.rows is None else self.rows - (0 if self.deleted is None else self.deleted.rows)


def live_rows(files: Iterable[DeltaFile]) -> int | None:
    """Return the number of rows of some files together; None if the log does not say."""
    total = 0
    for file in files:
        if file.live_rows is None:
            return None
        total += file.live_rows
    return total


def data_file(added: Action) -> DeltaFile:
    """Return the file that an `add` or a `remove` in the log is about."""
    vector = added.get("deletionVector")
    path, size = unquote(added["path"]), int(added.get("size") or 0)
    rows = _rows(added.get("stats"))
    if vector is None:
        return DeltaFile(path, size, None, rows)
    inline = str(vector["pathOrInlineDv"]) if vector.get("storageType") == "i" else ""
    place = VectorPlace(_vector(vector), int(vector.get("offset") or 0), inline, int(vector["cardinality"]))
    return DeltaFile(path, size, place, rows)


@contextmanager
def opened_data_file(table: Folder, file: str) -> Iterator[pq.ParquetFile]:
    """Open a data file of a table; raises UnreadableRowsError, now or while it is read, if it is missing or damaged."""
    try:
        # Spark may write timestamps in a form that Arrow would take for nanoseconds, which end in the year 2262.
        with parquet_file(table.store, table.key_of(file), int96="us") as parquet:
            yield parquet
    except NotFoundError:
        reason = "it is missing, and a cut that is kept needs it"
        raise UnreadableRowsError(table.url_of(file), reason, "restore it from a backup") from None
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        # Of a page that can't be decompressed, Arrow says it by an error that is no system's.
        reason = f"it is damaged ({str(error)[:200]})"
        raise UnreadableRowsError(table.url_of(file), reason, "restore it from a backup") from None


def _rows(stats: str | None) -> int | None:
    try:
        return int(json.loads(stats or "{}")["numRecords"])
    except (ValueError, LookupError, TypeError):
        return None


def _vector(vector: Action) -> str | None:
    """Return the file of a deletion vector: its name is 20 letters, a UUID in base 85, after a folder that may be empty."""
    text = vector.get("pathOrInlineDv")
    if vector.get("storageType") != "u" or text is None:
        return None
    folder, letters = text[:-_UUID_LETTERS], text[-_UUID_LETTERS:]
    name = f"deletion_vector_{uuid.UUID(bytes=of_base_85(letters))}.bin"
    return f"{folder}/{name}" if folder else name


def of_base_85(letters: str) -> bytes:
    """Return the bytes that five letters of Z85 for each four of them stand for; raises ValueError for other letters."""
    return base64.b85decode(letters.translate(_TO_B85))


def in_base_85(octets: bytes) -> str:
    """Return Z85's letters for bytes, of which there are four for each five letters."""
    return base64.b85encode(octets).decode().translate(_TO_Z85)


def deleted_rows(table: Folder, place: VectorPlace) -> Numbers:
    """Return the numbers of a file's deleted rows, in order; raises UnreadableRowsError if the vector is damaged."""
    thing = table.url if place.file is None else table.url_of(place.file)
    try:
        data = of_base_85(place.inline) if place.file is None else _of_vector_file(table, place.file, place.offset)
        (magic,) = struct.unpack_from("<i", data)
        numbers = np.array(BitMap64.deserialize(data[4:]).to_array(), dtype=np.int64)
        fault = "it is none" if magic != MAGIC else f"it has {len(numbers)} of {place.rows} rows"
    except NotFoundError:
        raise UnreadableRowsError(thing, "a deletion vector is missing", "restore it from a backup") from None
    except (ValueError, struct.error, IndexError) as error:
        magic, numbers, fault = 0, np.empty(0, np.int64), str(error)
    if magic != MAGIC or len(numbers) != place.rows:
        raise UnreadableRowsError(thing, f"a deletion vector is damaged ({fault})", "restore it from a backup")
    return numbers


def _of_vector_file(table: Folder, name: str, offset: int) -> bytes:
    """Return one vector's bytes out of a file that may have many: its length, itself, its checksum."""
    with table.store.open(table.key_of(name)) as file:
        file.seek(offset)
        (length,) = struct.unpack(">i", file.read(4))
        data = file.read(length)
        (checksum,) = struct.unpack(">I", file.read(4))
    if zlib.crc32(data) != checksum:
        raise ValueError("its checksum is another")
    return data
