"""The messages that servers sent when they were recorded, in `recorded/`.

How they are recorded is in `tests/core/pgoutput/record_messages.py`.
"""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

FOLDER = Path(__file__).parent / "recorded"
# Two-phase messages came with 15.
SENT = {"14-on": "ABCDEIMORSTUYc", "18-on": "ABCDEIKMOPRSTUYbcpr", "18-parallel": "ABCDEIKMOPRSTUYbcpr"}


def recorded(name: str) -> list[bytes]:
    """The messages of one recording, in order."""
    data = gzip.decompress((FOLDER / f"{name}.gz").read_bytes())
    messages, position = [], 0
    while position < len(data):
        (size,) = struct.unpack_from(">I", data, position)
        messages.append(data[position + 4 : position + 4 + size])
        position += 4 + size
    return messages
