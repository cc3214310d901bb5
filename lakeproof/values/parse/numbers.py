"""Parses booleans, integers and decimals, and checks the form of floats, from spans of a buffer; compiled.

`spans.py` decides which loop a column takes.

Each loop parses a whole column or none of it: it returns False at the first text that is not in PostgreSQL's usual form or
does not fit, and the column goes through `cast.py`, which knows the unusual forms. So every text accepted here must be
accepted there, with the same value. A span of negative size has no text; its value may be anything.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lakeproof.values.compiled import Octets, Places, compiled

_MINUS, _PLUS, _POINT, _ZERO, _NINE, _E = b"-+.09e"
_TRUE, _FALSE = b"tf"
_INT64_MIN = -(1 << 63)
_INT64_MIN_TENTH = -((1 << 63) // 10)
# An int64 holds ten times any number of this many digits.
_DIGITS_EASY = 18
_TEN, _LOW_HALF, _HALF, _ONE = np.uint64(10), np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(1)


@compiled
def parse_bools(octets: Octets, start: Places, size: Places, bits: Octets) -> bool:
    """Parse `t` and `f` into a bitmap of zeros."""
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
    """Parse decimal digits without leading zeros, from `low` to `high`."""
    for i in range(len(size)):
        if size[i] < 0:
            values[i] = 0
            continue
        offset = np.int64(start[i])
        end = offset + size[i]
        negative = size[i] > 0 and octets[offset] == _MINUS
        if negative:
            offset += 1
        if end <= offset or (octets[offset] == _ZERO and (negative or end > offset + 1)):
            return False
        # Downwards, since the least integer has no positive counterpart.
        value = 0
        for place in range(offset, end):
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
    """Parse at most `precision - scale` digits before the point and `scale` after it, to 128 bits each: low, high."""
    for i in range(len(size)):
        if size[i] < 0:
            values[2 * i] = values[2 * i + 1] = 0
            continue
        offset = np.int64(start[i])
        end = offset + size[i]
        negative = size[i] > 0 and octets[offset] == _MINUS
        if negative:
            offset += 1
        point = _after_digits(octets, offset, end)
        decimals = max(end - point - 1, 0)
        if point == offset or decimals > scale or not _ends_with_decimals(octets, point, end):
            return False
        while offset < point and octets[offset] == _ZERO:
            offset += 1
        if point - offset > precision - scale:
            return False
        low, high = _digits(octets, offset, point, end, scale - decimals)
        if negative:
            low = ~low + _ONE
            high = ~high
            if low == 0:
                high += _ONE
        values[2 * i] = low
        values[2 * i + 1] = high
    return True


@compiled
def _digits(octets: Octets, offset: int, point: int, end: int, zeros: int) -> tuple[np.uint64, np.uint64]:
    """Return the digits without the point, followed by zeros, as a number of 128 bits: low, high."""
    if end - offset + zeros <= _DIGITS_EASY:
        value = 0
        for place in range(offset, end):
            if place != point:
                value = value * 10 + (np.int64(octets[place]) - _ZERO)
        for _ in range(zeros):
            value *= 10
        return np.uint64(value), np.uint64(0)
    low, high = np.uint64(0), np.uint64(0)
    for place in range(offset, end + zeros):
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
    """True if all are finite and written `-?[0-9]+(.[0-9]+)?(e[+-][0-9]{2,3})?`."""
    for i in range(len(size)):
        if size[i] < 0:
            continue
        offset = np.int64(start[i])
        end = offset + size[i]
        if offset < end and octets[offset] == _MINUS:
            offset += 1
        whole_end = _after_digits(octets, offset, end)
        if whole_end == offset:
            return False
        offset = whole_end
        if offset < end and octets[offset] == _POINT:
            offset = _after_digits(octets, offset + 1, end)
            if offset == whole_end + 1:
                return False
        if offset < end:
            if octets[offset] != _E or end - offset < 4 or end - offset > 5:
                return False
            if octets[offset + 1] not in (_PLUS, _MINUS) or _after_digits(octets, offset + 2, end) != end:
                return False
    return True


@compiled
def _after_digits(octets: Octets, offset: int, end: int) -> int:
    """Return the offset of the first byte from `offset` on that is no digit, or `end`."""
    while offset < end and octets[offset] >= _ZERO and octets[offset] <= _NINE:
        offset += 1
    return offset


@compiled
def _ends_with_decimals(octets: Octets, point: int, end: int) -> bool:
    """True if from `point` on there is nothing, or only a point and digits."""
    if point == end:
        return True
    return octets[point] == _POINT and end > point + 1 and _after_digits(octets, point + 1, end) == end
