"""Spark's `xxhash64` of several columns, row by row, over Arrow's buffers; compiled.

Which columns of a row are hashed, in which order and at which type does not belong here (`lakeproof.landing.row_sums`).

Spark hashes a row's values one after the other, each with the hash so far as its seed, and passes over NULL. So a column is
mixed into an array of hashes, one per row, that begin with 42. Two forms of values cover all types:

    words    whole numbers, floats by their bits, days and times: 8 octets (`is_int`: 4, as Spark has dates and booleans)
    octets   texts, binary values, and decimals of more than 18 digits as their shortest big-endian octets
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lakeproof.values.compiled import compiled

SEED = np.uint64(42)
Hashes = npt.NDArray[np.uint64]
Words = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_P1, _P2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
_P3, _P4 = np.uint64(0x165667B19E3779F9), np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_LOW = np.uint64(0xFFFFFFFF)
_64, _4, _8 = np.uint64(64), np.uint64(4), np.uint64(8)
_R1, _R7, _R11, _R12, _R18 = np.uint64(1), np.uint64(7), np.uint64(11), np.uint64(12), np.uint64(18)
_R23, _R27, _R29, _R31, _R32, _R33 = (np.uint64(n) for n in (23, 27, 29, 31, 32, 33))


@compiled
def _rotated(value: np.uint64, bits: np.uint64) -> np.uint64:
    result: np.uint64 = (value << bits) | (value >> (_64 - bits))
    return result


@compiled
def _finished(value: np.uint64) -> np.uint64:
    value = (value ^ (value >> _R33)) * _P2
    value = (value ^ (value >> _R29)) * _P3
    result: np.uint64 = value ^ (value >> _R32)
    return result


@compiled
def _of_word(word: np.int64, seed: np.uint64, is_int: bool) -> np.uint64:
    if is_int:
        value = (seed + _P5 + _4) ^ ((np.uint64(word) & _LOW) * _P1)
        return _finished(_rotated(value, _R23) * _P2 + _P3)
    value = (seed + _P5 + _8) ^ (_rotated(np.uint64(word) * _P2, _R31) * _P1)
    return _finished(_rotated(value, _R27) * _P1 + _P4)


@compiled
def _word_at(octets: Octets, place: int) -> np.uint64:
    """Return eight octets, the least significant first."""
    word = np.uint64(0)
    for i in range(7, -1, -1):
        word = (word << _8) | np.uint64(octets[place + i])
    result: np.uint64 = word
    return result


@compiled
def _of_octets(octets: Octets, start: int, end: int, seed: np.uint64) -> np.uint64:
    place = start
    if end - start >= 32:
        a, b, c, d = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
        while place <= end - 32:
            a = _rotated(a + _word_at(octets, place) * _P2, _R31) * _P1
            b = _rotated(b + _word_at(octets, place + 8) * _P2, _R31) * _P1
            c = _rotated(c + _word_at(octets, place + 16) * _P2, _R31) * _P1
            d = _rotated(d + _word_at(octets, place + 24) * _P2, _R31) * _P1
            place += 32
        value = _rotated(a, _R1) + _rotated(b, _R7) + _rotated(c, _R12) + _rotated(d, _R18)
        for lane in (a, b, c, d):
            value = (value ^ (_rotated(lane * _P2, _R31) * _P1)) * _P1 + _P4
    else:
        value = seed + _P5
    value += np.uint64(end - start)
    while place <= end - 8:
        value = _rotated(value ^ (_rotated(_word_at(octets, place) * _P2, _R31) * _P1), _R27) * _P1 + _P4
        place += 8
    if place <= end - 4:
        half = np.uint64(0)
        for i in range(3, -1, -1):
            half = (half << _8) | np.uint64(octets[place + i])
        value = _rotated(value ^ (half * _P1), _R23) * _P2 + _P3
        place += 4
    while place < end:
        value = _rotated(value ^ (np.uint64(octets[place]) * _P5), _R11) * _P1
        place += 1
    return _finished(value)


@compiled
def mix_tag(hashes: Hashes, valid: Flags, tag: Octets) -> None:
    """Mix a text into the hashes of the rows that have a value."""
    for i in range(len(hashes)):
        if valid[i]:
            hashes[i] = _of_octets(tag, 0, len(tag), hashes[i])


@compiled
def mix_words(hashes: Hashes, valid: Flags, words: Words, is_int: bool) -> None:
    """Mix a column of words."""
    for i in range(len(hashes)):
        if valid[i]:
            hashes[i] = _of_word(words[i], hashes[i], is_int)


@compiled
def mix_octets(hashes: Hashes, valid: Flags, octets: Octets, offsets: Offsets) -> None:
    """Mix a column of texts: the value of row i is between offsets i and i + 1."""
    for i in range(len(hashes)):
        if valid[i]:
            hashes[i] = _of_octets(octets, offsets[i], offsets[i + 1], hashes[i])


@compiled
def decimal_octets(halves: Words, octets: Octets, offsets: Offsets) -> None:
    """Write the shortest big-endian octets of 128-bit numbers (their low half, then their high half, each); 16 at most."""
    place = 0
    for i in range(len(offsets) - 1):
        low, high = np.uint64(halves[2 * i]), halves[2 * i + 1]
        sign = np.uint8(255) if high < 0 else np.uint8(0)
        begun = False
        for shift in range(15, -1, -1):
            half = np.uint64(high) if shift >= 8 else low
            octet = np.uint8((half >> np.uint64(8 * (shift & 7))) & np.uint64(255))
            if not begun and shift > 0 and octet == sign:
                following = np.uint64(high) if shift > 8 else low
                top = np.uint8((following >> np.uint64(8 * ((shift - 1) & 7) + 7)) & np.uint64(1))
                if top == (sign & np.uint8(1)):
                    continue
            begun = True
            octets[place] = octet
            place += 1
        offsets[i + 1] = place


@compiled
def sum_hashes(hashes: Hashes) -> np.uint64:
    """Return the sum of all hashes, modulo 2**64."""
    total = np.uint64(0)
    for value in hashes:
        total += value
    result: np.uint64 = total
    return result
