"""Finds the messages of a COPY in bytes from a socket: one compiled pass over their lengths.

They come one after the other, and the last may be cut off:

    d len w header message │ d len w header message │ N len … │ d le        kind, length of itself and the rest, body
"""

from __future__ import annotations

import numpy as np

from lakeproof.pgoutput.message_buffer import Ints, Octets
from lakeproof.postgres.connections.libpq import ENVELOPE_BYTES, MESSAGE_BYTES_MAX
from lakeproof.values.compiled import compiled

_DATA = ord("d")


@compiled
def find_messages(
    octets: Octets, start: int, stop: int, tag: int, header: int, begin: Ints, end: Ints, count: int
) -> tuple[int, int, bool]:
    """Record the places of data messages from `start` on, as long as they follow one another and there is room.

    A data message's body begins with the byte `tag` (any byte if `tag` is negative) and has more than `header` bytes,
    which its place leaves out. Returns the position of the end, the new count, and true if a message of another kind
    begins there that is complete or has an impossible length.
    """
    while count < len(begin) and start + ENVELOPE_BYTES <= stop:
        length = (
            np.int64(octets[start + 1]) << 24
            | np.int64(octets[start + 2]) << 16
            | np.int64(octets[start + 3]) << 8
            | np.int64(octets[start + 4])
        )
        body, follows = start + ENVELOPE_BYTES, start + 1 + length
        whole = follows <= stop
        if not whole and 4 <= length <= MESSAGE_BYTES_MAX:
            break
        if octets[start] != _DATA or not whole or length <= 4 + header or (tag >= 0 and octets[body] != tag):
            return start, count, True
        begin[count] = body + header
        end[count] = follows
        count += 1
        start = follows
    return start, count, False


def warm_up_framing() -> None:
    """Load the loop, or compile it the first time on a machine (a second)."""
    none = np.zeros(0, np.int64)
    find_messages(np.zeros(0, np.uint8), 0, 0, 0, 0, none, none, 0)
