"""The first bits of MD5 digests of rows' texts, over Arrow's buffers; compiled.

A row's texts are made in `lakeproof.values.exact_texts`. Python's own MD5 gives the same digests, one call per row: it is
for long texts, and the tests' oracle for all.

A digest of one text is a chain of 64 steps for every 64 octets, each of which waits for the one before. So a step is done
for many rows at once, which a processor does eight or sixteen at a time: a quarter of the time of one row after the other.
For that the rows' texts are laid into whole blocks, with what MD5 puts behind a text.

No loop writes to what it reads.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeproof.values.compiled import compiled, text_buffers

Bits = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]

# Rows whose digests are computed together: their words fit into the processor's first cache.
_ROWS = 128
_WORDS = 16  # of a block
# Octets of a text for which a call of Python's own MD5 costs nothing beside the digest: few rows have as many blocks, and
# alone with them a step takes as long as for many.
_LONG = 4_096
_STEPS = 64
_ADDED = np.array([int(abs(math.sin(i + 1)) * (1 << 32)) for i in range(_STEPS)], np.uint32)
_WORD_OF = np.array(
    [
        *range(16),
        *((5 * i + 1) % 16 for i in range(16, 32)),
        *((3 * i + 5) % 16 for i in range(32, 48)),
        *((7 * i) % 16 for i in range(48, 64)),
    ],
    np.int64,
)
_ROTATED = np.array([*[7, 12, 17, 22] * 4, *[5, 9, 14, 20] * 4, *[4, 11, 16, 23] * 4, *[6, 10, 15, 21] * 4], np.uint32)
_FIRST = np.array([0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476], np.uint32)
_32 = np.uint32(32)
# A place in octets is unsigned: a signed one may count from the end, and then eight octets are eight loads.
_1, _8 = np.uint64(1), np.uint64(8)
_NO_OCTET = -1


def digest_bits(parts: Sequence[pa.Array | str], rows: int) -> Bits:
    """Return the first 60 bits of the digest of each row's text: its parts, one after the other.

    A part is a column of texts without NULL, or the one octet that follows it in every row.
    """
    sizes = np.zeros(rows, np.int64)
    columns: list[tuple[Octets, Offsets, int]] = []
    for part in parts:
        if isinstance(part, str):
            columns[-1] = (*columns[-1][:2], ord(part))
            sizes += 1
        else:
            columns.append((*text_buffers(part), _NO_OCTET))
            sizes += np.diff(columns[-1][1])
    firsts = np.zeros(rows + 1, np.int64)
    # Behind a text there are one octet and the text's length, of eight octets.
    np.cumsum((sizes + 72) >> 6, out=firsts[1:])
    blocks, places = np.zeros(int(firsts[-1]) << 6, np.uint8), firsts[:-1] << 6
    for octets, offsets, ending in columns:
        _put(blocks, places, octets, offsets, ending)
    ends, bits = firsts[1:].copy(), np.zeros(rows, np.int64)
    long = np.flatnonzero(sizes > _LONG)
    ends[long] = firsts[long]
    _end(blocks, places, firsts)
    _digest(blocks.view("<u4"), firsts, ends, bits)
    for row in long:
        text = blocks[firsts[row] << 6 : places[row]].data
        bits[row] = int(hashlib.md5(text, usedforsecurity=False).hexdigest()[:15], 16)
    return bits


@compiled
def _put(blocks: Octets, places: Places, octets: Octets, offsets: Offsets, ending: int) -> None:
    """Put a part of each row at the row's place, which moves behind it."""
    for row in range(len(places)):
        place, start, end = np.uint64(places[row]), np.uint64(offsets[row]), np.uint64(offsets[row + 1])
        while start + _8 <= end:
            for i in range(8):
                blocks[place + np.uint64(i)] = octets[start + np.uint64(i)]
            place, start = place + _8, start + _8
        while start < end:
            blocks[place] = octets[start]
            place, start = place + _1, start + _1
        if ending != _NO_OCTET:
            blocks[place] = ending
            place += _1
        places[row] = place


@compiled
def _end(blocks: Octets, places: Places, firsts: Places) -> None:
    """Put behind each text what ends it: a bit, and its length in bits."""
    for row in range(len(places)):
        blocks[places[row]] = 0x80
        length, end = (places[row] - (firsts[row] << 6)) << 3, firsts[row + 1] << 6
        for i in range(8):
            blocks[end - 8 + i] = (length >> (8 * i)) & 0xFF


@compiled
def _step(kind: int, a: Words, b: Words, c: Words, d: Words, word: Words, added: np.uint32, turn: np.uint32) -> None:  # noqa: PLR0917  compiled loops are called by position
    """Take a word of each row into its state."""
    back = _32 - turn
    if kind == 0:
        for i in range(len(a)):
            total = np.uint32(a[i] + ((b[i] & c[i]) | (~b[i] & d[i])) + added + word[i])
            a[i] = b[i] + (np.uint32(total << turn) | np.uint32(total >> back))
    elif kind == 1:
        for i in range(len(a)):
            total = np.uint32(a[i] + ((d[i] & b[i]) | (~d[i] & c[i])) + added + word[i])
            a[i] = b[i] + (np.uint32(total << turn) | np.uint32(total >> back))
    elif kind == 2:
        for i in range(len(a)):
            total = np.uint32(a[i] + (b[i] ^ c[i] ^ d[i]) + added + word[i])
            a[i] = b[i] + (np.uint32(total << turn) | np.uint32(total >> back))
    else:
        for i in range(len(a)):
            total = np.uint32(a[i] + (c[i] ^ (b[i] | ~d[i])) + added + word[i])
            a[i] = b[i] + (np.uint32(total << turn) | np.uint32(total >> back))


@compiled
def _turned_around(word: np.uint32) -> np.uint64:
    """Return a word with its octets in the other order."""
    value = np.uint64(word)
    low, high = np.uint64(0xFF), np.uint64(0xFF00)
    inner = ((value & high) << np.uint64(8)) | ((value >> np.uint64(8)) & high)
    result: np.uint64 = ((value & low) << np.uint64(24)) | inner | (value >> np.uint64(24))
    return result


@compiled
def _digest(words: Words, firsts: Places, ends: Places, bits: Bits) -> None:
    """Fill `bits`: row i has the blocks from `firsts[i]` to `ends[i]`."""
    states, state = np.empty((4, _ROWS), np.uint32), np.empty((4, _ROWS), np.uint32)
    of_rows, longer = np.empty((_WORDS, _ROWS), np.uint32), np.empty(_ROWS, np.int64)
    for first in range(0, len(bits), _ROWS):
        count = min(_ROWS, len(bits) - first)
        for i in range(4):
            states[i, :count] = _FIRST[i]
        block, n = 0, count
        while n:
            # The rows that have another block are together at the front.
            n = 0
            for row in range(count):
                place = firsts[first + row] + block
                if place < ends[first + row]:
                    longer[n] = row
                    for i in range(_WORDS):
                        of_rows[i, n] = words[(place << 4) + i]
                    for i in range(4):
                        state[i, n] = states[i, row]
                    n += 1
            a, b, c, d = state[0, :n], state[1, :n], state[2, :n], state[3, :n]
            for i in range(_STEPS):
                _step(i >> 4, a, b, c, d, of_rows[_WORD_OF[i], :n], _ADDED[i], _ROTATED[i])
                a, b, c, d = d, a, b, c
            for i in range(4):
                for j in range(n):
                    states[i, longer[j]] += state[i, j]
            block += 1
        for row in range(count):
            both = (_turned_around(states[0, row]) << np.uint64(32)) | _turned_around(states[1, row])
            bits[first + row] = np.int64(both >> np.uint64(4))
