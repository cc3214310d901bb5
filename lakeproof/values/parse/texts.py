r"""Copies strings and byte strings, and sets validity bits, from spans of a buffer; compiled.

Arrow's validator (`spans.py`) checks UTF-8; the loops here only detect ASCII. A span of negative size has no text.
"""

from __future__ import annotations

import numpy as np

from lakeproof.values.compiled import Octets, Places, compiled

_BACKSLASH, _X, _ZERO, _NINE, _A, _F = b"\\x09af"


@compiled
def find_offsets(size: Places, offsets: Places) -> int:
    """Set each text's offset when the texts are joined; returns their total bytes."""
    total = 0
    for i in range(len(size)):
        offsets[i] = total
        if size[i] > 0:
            total += np.int64(size[i])
    offsets[len(size)] = total
    return total


@compiled
def copy_texts(octets: Octets, start: Places, size: Places, out: Octets) -> bool:
    """Join the texts; True if all are ASCII."""
    seen = np.uint8(0)
    to = 0
    for i in range(len(size)):
        place = np.int64(start[i])
        for offset in range(np.int64(size[i])):
            octet = octets[place + offset]
            out[to + offset] = octet
            seen |= octet
        if size[i] > 0:
            to += np.int64(size[i])
    ascii_alone: bool = seen < 0x80
    return ascii_alone


@compiled
def _hex(octet: int) -> int:
    """Return the value of a lower-case hexadecimal digit, or a negative number."""
    if octet >= _ZERO and octet <= _NINE:
        return octet - _ZERO
    if octet >= _A and octet <= _F:
        return octet - _A + 10
    return -256


@compiled
def parse_hex(octets: Octets, start: Places, size: Places, offsets: Places, out: Octets) -> int:
    r"""Parse `\x6869` to two bytes; returns the total bytes, or -1. `out` has room for half the bytes of the texts."""
    to = 0
    for i in range(len(size)):
        offsets[i] = to
        if size[i] < 0:
            continue
        offset = np.int64(start[i])
        end = offset + size[i]
        if size[i] < 2 or size[i] % 2 or octets[offset] != _BACKSLASH or octets[offset + 1] != _X:
            return -1
        for place in range(offset + 2, end, 2):
            value = _hex(np.int64(octets[place])) * 16 + _hex(np.int64(octets[place + 1]))
            if value < 0:
                return -1
            out[to] = value
            to += 1
    offsets[len(size)] = to
    return to


@compiled
def find_validity(size: Places, bits: Octets) -> None:
    """Set a bit for each text in a bitmap of zeros."""
    for i in range(len(size)):
        if size[i] >= 0:
            bits[i >> 3] |= np.uint8(1 << (i & 7))
