"""Spark's `xxhash64` of several columns, row by row, over Arrow's buffers; compiled.

`lakeproof.landing.segments.row_sums` chooses the columns of a row, their order and types.

Spark hashes a row's values one after the other, each with the hash so far as its seed, and passes over NULL. So a column is
mixed into an array of hashes, one per row, that begin with 42: its tag, then its value. Forms of values:

    words     whole numbers, floats by their bits, days and times: 8 octets (`is_int`: 4, as Spark has dates and booleans)
    octets    texts and binary values; or a few of them, of which each row has one
    decimals  of more than 18 digits: their shortest big-endian octets

No loop writes to what it reads; arrays without values for `valid` have a value in every row. A place in octets is unsigned:
a signed one may count from the end, and then eight octets are eight loads.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lakeproof.values.compiled import Octets, Places, compiled

SEED = np.uint64(42)
# The tag of values whose tag was mixed in before.
NO_TAG = -1
Hashes = npt.NDArray[np.uint64]
Words = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_P1, _P2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
_P3, _P4 = np.uint64(0x165667B19E3779F9), np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_LOW = np.uint64(0xFFFFFFFF)
_64, _56, _32 = np.uint64(64), np.uint64(56), np.uint64(32)
_0, _1, _2, _3, _4, _5, _6, _7, _8 = (np.uint64(n) for n in range(9))
_16, _24, _40, _48 = np.uint64(16), np.uint64(24), np.uint64(40), np.uint64(48)
_R11, _R12, _R18 = np.uint64(11), np.uint64(12), np.uint64(18)
_R23, _R27, _R29, _R31, _R33 = (np.uint64(n) for n in (23, 27, 29, 31, 33))


@compiled
def _rotated(value: np.uint64, bits: np.uint64) -> np.uint64:
    result: np.uint64 = (value << bits) | (value >> (_64 - bits))
    return result


@compiled
def _finished(value: np.uint64) -> np.uint64:
    value = (value ^ (value >> _R33)) * _P2
    value = (value ^ (value >> _R29)) * _P3
    result: np.uint64 = value ^ (value >> _32)
    return result


# Two functions and not one with a flag: numba compiles a constant's call apart from a variable's.
@compiled
def _of_int(word: np.int64, seed: np.uint64) -> np.uint64:
    value = (seed + _P5 + _4) ^ ((np.uint64(word) & _LOW) * _P1)
    return _finished(_rotated(value, _R23) * _P2 + _P3)


@compiled
def _of_long(word: np.int64, seed: np.uint64) -> np.uint64:
    value = (seed + _P5 + _8) ^ (_rotated(np.uint64(word) * _P2, _R31) * _P1)
    return _finished(_rotated(value, _R27) * _P1 + _P4)


@compiled
def _tagged(seed: np.uint64, tag: int) -> np.uint64:
    return _of_int(np.int64(tag), seed) if tag >= 0 else seed


@compiled
def _half_at(octets: Octets, place: np.uint64) -> np.uint64:
    """Return four octets, the least significant first."""
    low = np.uint64(octets[place]) | (np.uint64(octets[place + _1]) << _8)
    high = np.uint64(octets[place + _2]) | (np.uint64(octets[place + _3]) << _8)
    result: np.uint64 = low | (high << _16)
    return result


@compiled
def _word_at(octets: Octets, place: np.uint64) -> np.uint64:
    """Return eight octets, the least significant first."""
    result: np.uint64 = _half_at(octets, place) | (_half_at(octets, place + _4) << _32)
    return result


@compiled
def _with_word(value: np.uint64, word: np.uint64) -> np.uint64:
    result: np.uint64 = _rotated(value ^ (_rotated(word * _P2, _R31) * _P1), _R27) * _P1 + _P4
    return result


@compiled
def _with_half(value: np.uint64, half: np.uint64) -> np.uint64:
    result: np.uint64 = _rotated(value ^ (half * _P1), _R23) * _P2 + _P3
    return result


@compiled
def _with_octet(value: np.uint64, octet: np.uint64) -> np.uint64:
    result: np.uint64 = _rotated(value ^ (octet * _P5), _R11) * _P1
    return result


@compiled
def of_octets(octets: Octets, start: np.int64, size: np.int64, seed: np.uint64) -> np.uint64:
    """Return the hash of `size` octets from `start` on."""
    place = np.uint64(start)
    end = place + np.uint64(size)
    if size >= 32:
        a, b, c, d = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
        while place + _32 <= end:
            a = _rotated(a + _word_at(octets, place) * _P2, _R31) * _P1
            b = _rotated(b + _word_at(octets, place + _8) * _P2, _R31) * _P1
            c = _rotated(c + _word_at(octets, place + _16) * _P2, _R31) * _P1
            d = _rotated(d + _word_at(octets, place + _24) * _P2, _R31) * _P1
            place += _32
        value = _rotated(a, _1) + _rotated(b, _7) + _rotated(c, _R12) + _rotated(d, _R18)
        for lane in (a, b, c, d):
            value = (value ^ (_rotated(lane * _P2, _R31) * _P1)) * _P1 + _P4
    else:
        value = seed + _P5
    value += np.uint64(size)
    while place + _8 <= end:
        value = _with_word(value, _word_at(octets, place))
        place += _8
    if place + _4 <= end:
        value = _with_half(value, _half_at(octets, place))
        place += _4
    while place < end:
        value = _with_octet(value, np.uint64(octets[place]))
        place += _1
    return _finished(value)


@compiled
def mix_words(hashes: Hashes, valid: Flags, words: Words, is_int: bool, tag: int) -> None:
    """Mix a column of words."""
    every = len(valid) == 0
    for i in range(len(hashes)):
        if every or valid[i]:
            seed = _tagged(hashes[i], tag)
            hashes[i] = _of_int(words[i], seed) if is_int else _of_long(words[i], seed)


@compiled
def mix_octets(hashes: Hashes, valid: Flags, octets: Octets, offsets: Places, tag: int) -> None:
    """Mix a column of texts: the value of row i is between offsets i and i + 1."""
    every = len(valid) == 0
    for i in range(len(hashes)):
        if every or valid[i]:
            start = np.int64(offsets[i])
            hashes[i] = of_octets(octets, start, np.int64(offsets[i + 1]) - start, _tagged(hashes[i], tag))


@compiled
def mix_chosen(  # noqa: PLR0917  compiled loops are called by position
    hashes: Hashes, valid: Flags, chosen: Words, octets: Octets, offsets: Places, tag: int
) -> None:
    """Mix a column of texts that repeat: row i has the one between offsets `chosen[i]` and `chosen[i]` + 1."""
    every = len(valid) == 0
    for i in range(len(hashes)):
        if every or valid[i]:
            start = np.int64(offsets[chosen[i]])
            size = np.int64(offsets[chosen[i] + 1]) - start
            hashes[i] = of_octets(octets, start, size, _tagged(hashes[i], tag))


@compiled
def _octet_of(low: np.uint64, high: np.uint64, place: np.uint64) -> np.uint64:
    """Return an octet of a number of 128 bits, the least significant at place 0."""
    half = high if place >= _8 else low
    result: np.uint64 = (half >> ((place & _7) << _3)) & np.uint64(255)
    return result


@compiled
def _of_decimal(low: np.uint64, high: np.uint64, seed: np.uint64) -> np.uint64:
    sign = np.uint64(0) - (high >> np.uint64(63))
    # The octets that say more than the sign: the sign's bit must be in the first of them.
    left = high ^ sign if high != sign else low ^ sign
    size = _8 if high != sign else _0
    while left:
        left >>= _8
        size += _1
    size = max(size, _1)
    if size < _16 and (_octet_of(low, high, size - _1) >> _7) != (sign & _1):
        size += _1
    value = seed + _P5 + size
    place = size
    while place >= _8:
        word = _0
        for i in range(8):
            word |= _octet_of(low, high, place - _1 - np.uint64(i)) << np.uint64(8 * i)
        value = _with_word(value, word)
        place -= _8
    if place >= _4:
        half = _0
        for i in range(4):
            half |= _octet_of(low, high, place - _1 - np.uint64(i)) << np.uint64(8 * i)
        value = _with_half(value, half)
        place -= _4
    while place > _0:
        value = _with_octet(value, _octet_of(low, high, place - _1))
        place -= _1
    return _finished(value)


@compiled
def mix_decimals(hashes: Hashes, valid: Flags, halves: Words, tag: int) -> None:
    """Mix numbers of 128 bits: the low half of each, then its high half."""
    every = len(valid) == 0
    for i in range(len(hashes)):
        if every or valid[i]:
            seed = _tagged(hashes[i], tag)
            hashes[i] = _of_decimal(np.uint64(halves[2 * i]), np.uint64(halves[2 * i + 1]), seed)


@compiled
def sum_hashes(hashes: Hashes) -> np.uint64:
    """Return the sum of all hashes, modulo 2**64."""
    total = np.uint64(0)
    for value in hashes:
        total += value
    result: np.uint64 = total
    return result
