"""Booleans, integers, decimals and the shapes of floats, from spans of a buffer, compiled.

Dates belong to `parse_times.py`, strings to `parse_texts.py`, and which of them a column takes to `spans.py`.

Each loop takes a whole column or says that it can't: it gives False at the first text that is not in PostgreSQL's usual form
or does not fit, and the column goes through `cast.py`, which knows the unusual. So what is accepted here must be a part of
what is accepted there, with the same values. A span's size is negative where there is no text; its value is then any.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lakeproof.values.compiled import compiled

_MINUS, _PLUS, _POINT, _ZERO, _NINE, _E = b"-+.09e"
_TRUE, _FALSE = b"tf"
_INT64_MIN = -(1 << 63)
_INT64_MIN_TENTH = -((1 << 63) // 10)
# Of any number of so many digits an int64 holds ten times as much.
_DIGITS_EASY = 18
_TEN, _LOW_HALF, _HALF, _ONE = np.uint64(10), np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(1)

Octets = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int32]


@compiled
def parse_bools(octets: Octets, start: Places, size: Places, bits: Octets) -> bool:
    """`t` and `f` into a bitmap of zeros."""
    for i in range(len(size)):
        if size[i] < 0:
            continue
        if size[i] != 1:
            return False
        octet = octets[start[i]]
        if octet == _TRUE:
            bits[i >> 3] |= np.uint8(1 << (i & 7))
        elif octet != _FALSE:
            return False
    return True


@compiled
def parse_integers(
    octets: Octets, start: Places, size: Places, low: int, high: int, values: npt.NDArray[np.int64]
) -> bool:
    """Decimal digits without leading zeros, from `low` to `high`."""
    for i in range(len(size)):
        if size[i] < 0:
            values[i] = 0
            continue
        at = np.int64(start[i])
        end = at + size[i]
        negative = size[i] > 0 and octets[at] == _MINUS
        if negative:
            at += 1
        if end <= at or (octets[at] == _ZERO and (negative or end > at + 1)):
            return False
        # Downwards, since the least has no positive counterpart.
        value = 0
        for place in range(at, end):
            digit = np.int64(octets[place]) - _ZERO
            if digit < 0 or digit > 9:
                return False
            if value < _INT64_MIN_TENTH or (value == _INT64_MIN_TENTH and digit > 8):
                return False
            value = value * 10 - digit
        if not negative:
            if value == _INT64_MIN:
                return False
            value = -value
        if value < low or value > high:
            return False
        values[i] = value
    return True


@compiled
def parse_decimals(
    octets: Octets, start: Places, size: Places, precision: int, scale: int, values: npt.NDArray[np.uint64]
) -> bool:
    """Digits, at most `precision - scale` of them before the point and `scale` after it, as 128 bits each: low, high."""
    for i in range(len(size)):
        if size[i] < 0:
            values[2 * i] = values[2 * i + 1] = 0
            continue
        at = np.int64(start[i])
        end = at + size[i]
        negative = size[i] > 0 and octets[at] == _MINUS
        if negative:
            at += 1
        point = _after_digits(octets, at, end)
        decimals = max(end - point - 1, 0)
        if point == at or decimals > scale or not _ends_with_decimals(octets, point, end):
            return False
        while at < point and octets[at] == _ZERO:
            at += 1
        if point - at > precision - scale:
            return False
        low, high = _digits(octets, at, point, end, scale - decimals)
        if negative:
            low = ~low + _ONE
            high = ~high
            if low == 0:
                high += _ONE
        values[2 * i] = low
        values[2 * i + 1] = high
    return True


@compiled
def _digits(octets: Octets, at: int, point: int, end: int, zeros: int) -> tuple[np.uint64, np.uint64]:
    """The digits but the point, then so many zeros, as a number of 128 bits: low, high."""
    if end - at + zeros <= _DIGITS_EASY:
        value = 0
        for place in range(at, end):
            if place != point:
                value = value * 10 + (np.int64(octets[place]) - _ZERO)
        for _ in range(zeros):
            value *= 10
        return np.uint64(value), np.uint64(0)
    low, high = np.uint64(0), np.uint64(0)
    for place in range(at, end + zeros):
        if place == point and point < end:
            continue
        digit = np.uint64(np.int64(octets[place]) - _ZERO) if place < end else np.uint64(0)
        bottom = (low & _LOW_HALF) * _TEN + digit
        top = (low >> _HALF) * _TEN + (bottom >> _HALF)
        high = high * _TEN + (top >> _HALF)
        low = (top << _HALF) | (bottom & _LOW_HALF)
    return low, high


@compiled
def are_plain_floats(octets: Octets, start: Places, size: Places) -> bool:
    """Whether all are finite and written `-?[0-9]+(.[0-9]+)?(e[+-][0-9]{2,3})?`."""
    for i in range(len(size)):
        if size[i] < 0:
            continue
        at = np.int64(start[i])
        end = at + size[i]
        if at < end and octets[at] == _MINUS:
            at += 1
        whole_end = _after_digits(octets, at, end)
        if whole_end == at:
            return False
        at = whole_end
        if at < end and octets[at] == _POINT:
            at = _after_digits(octets, at + 1, end)
            if at == whole_end + 1:
                return False
        if at < end:
            if octets[at] != _E or end - at < 4 or end - at > 5:
                return False
            if octets[at + 1] not in (_PLUS, _MINUS) or _after_digits(octets, at + 2, end) != end:
                return False
    return True


@compiled
def _after_digits(octets: Octets, at: int, end: int) -> int:
    """The first place from `at` on where no digit is, or `end`."""
    while at < end and octets[at] >= _ZERO and octets[at] <= _NINE:
        at += 1
    return at


@compiled
def _ends_with_decimals(octets: Octets, point: int, end: int) -> bool:
    """Whether there is nothing from `point` on, or a point and digits alone."""
    if point == end:
        return True
    return octets[point] == _POINT and end > point + 1 and _after_digits(octets, point + 1, end) == end
