"""The first bits of MD5 digests of texts, row by row, over Arrow's buffers; compiled.

Which text a row has does not belong here (`lakeproof.values.exact_texts`). Python's own MD5 gives the same digests, one call
per row and with the interpreter's lock: a test holds the two equal.

No loop writes to what it reads.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from lakeproof.values.compiled import compiled

Bits = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint32]

_BLOCK = 64
_ADDED = np.array([int(abs(math.sin(i + 1)) * (1 << 32)) for i in range(_BLOCK)], np.uint32)
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
_A, _B, _C, _D = (np.uint32(n) for n in (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476))
_32 = np.uint32(32)


@compiled
def _add_block(state: Words, words: Words) -> None:
    """Take one block of sixteen words into the state."""
    a, b, c, d = state[0], state[1], state[2], state[3]
    for i in range(64):
        if i < 16:
            mixed = (b & c) | (~b & d)
        elif i < 32:
            mixed = (d & b) | (~d & c)
        elif i < 48:
            mixed = b ^ c ^ d
        else:
            mixed = c ^ (b | ~d)
        total = np.uint32(a + mixed + _ADDED[i] + words[_WORD_OF[i]])
        turned = np.uint32(total << _ROTATED[i]) | np.uint32(total >> (_32 - _ROTATED[i]))
        a, d, c, b = d, c, b, np.uint32(b + turned)
    state[0] += a
    state[1] += b
    state[2] += c
    state[3] += d


@compiled
def _load(words: Words, octets: Octets, place: int, size: int) -> None:
    """Put up to 64 octets into the words, and zeros behind them."""
    for i in range(16):
        words[i] = np.uint32(0)
    for i in range(size):
        words[i >> 2] |= np.uint32(octets[place + i]) << np.uint32((i & 3) << 3)


@compiled
def _turned_around(word: np.uint32) -> np.uint64:
    """Return a word with its octets in the other order."""
    value = np.uint64(word)
    low, high = np.uint64(0xFF), np.uint64(0xFF00)
    inner = ((value & high) << np.uint64(8)) | ((value >> np.uint64(8)) & high)
    result: np.uint64 = ((value & low) << np.uint64(24)) | inner | (value >> np.uint64(24))
    return result


@compiled
def digest_bits(octets: Octets, offsets: Offsets, bits: Bits) -> None:
    """Fill `bits` with the first 60 bits of the digest of each text: text i is between offsets i and i + 1."""
    state, words = np.empty(4, np.uint32), np.empty(16, np.uint32)
    for row in range(len(bits)):
        place, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        length = np.uint64(end - place) << np.uint64(3)
        state[0], state[1], state[2], state[3] = _A, _B, _C, _D
        while end - place >= 64:
            _load(words, octets, place, 64)
            _add_block(state, words)
            place += 64
        left = end - place
        _load(words, octets, place, left)
        words[left >> 2] |= np.uint32(0x80) << np.uint32((left & 3) << 3)
        if left >= 56:
            _add_block(state, words)
            for i in range(14):
                words[i] = np.uint32(0)
        words[14] = np.uint32(length & np.uint64(0xFFFFFFFF))
        words[15] = np.uint32(length >> np.uint64(32))
        _add_block(state, words)
        first = (_turned_around(state[0]) << np.uint64(32)) | _turned_around(state[1])
        bits[row] = np.int64(first >> np.uint64(4))
