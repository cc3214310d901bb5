"""Deletion vectors as files of a table's folder: one file for a commit, with a bitmap for each data file that it touches.

Reading one belongs to `arrow_rows`, deciding which rows go to the callers.

    offset  bytes  value
    0       1      1, the form's version
    then for each vector, at the `offset` that its action has:
            4      the length of magic number and bitmap, big endian
            4      1681511377, little endian
            n      the bitmap, in Roaring's portable 64-bit form
            4      CRC-32 of magic number and bitmap, big endian
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from pyroaring import BitMap64

from lakeproof.lake.delta.files import in_base_85
from lakeproof.storage.folder import Folder

MAGIC = 1_681_511_377
_VERSION = b"\x01"


def write_vectors(table: Folder, vectors: Sequence[np.ndarray[Any, np.dtype[np.int64]]]) -> list[dict[str, Any]]:
    """Write one file with a vector for each sorted array of row numbers; return the `deletionVector` of each.

    It is durable with the commit that names it (`fsync`). Nothing is written for no vectors.
    """
    if not vectors:
        return []
    unique = uuid.uuid4()
    data, places = bytearray(_VERSION), []
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
    file = table.store.create(table.key_of(f"deletion_vector_{unique}.bin"), durable=False)
    try:
        file.write(bytes(data))
        file.finish()
    except BaseException:
        file.abandon()
        raise
    return places
