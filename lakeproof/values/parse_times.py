"""Dates and timestamps of the years 1 to 9999, from spans of a buffer, compiled.

Infinities, BC and later years belong to `cast.py`: as in `parse_numbers.py`, one text that is not in the usual form ends the
loop with False, and a span of negative size is no text.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lakeproof.values.compiled import compiled

_ZERO, _MINUS, _BLANK, _COLON, _POINT, _PLUS = b"0- :.+"
_BAD = -(1 << 63)
_DAY_BYTES, _TIME_BYTES = len("YYYY-MM-DD"), len("YYYY-MM-DD HH:MM:SS")
_FRACTION_DIGITS = 6
_DAY_US = 86_400_000_000

Octets = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int32]


@compiled
def parse_days(octets: Octets, start: Places, size: Places, values: npt.NDArray[np.int32]) -> bool:
    """`YYYY-MM-DD` as days since 1970-01-01."""
    for i in range(len(size)):
        values[i] = 0
        if size[i] < 0:
            continue
        if size[i] != _DAY_BYTES:
            return False
        day = _day(octets, np.int64(start[i]))
        if day == _BAD:
            return False
        values[i] = day
    return True


@compiled
def parse_instants(octets: Octets, start: Places, size: Places, with_zone: bool, values: npt.NDArray[np.int64]) -> bool:
    """`YYYY-MM-DD HH:MM:SS[.ffffff]`, then `+00` if `with_zone`, as microseconds since 1970-01-01."""
    for i in range(len(size)):
        values[i] = 0
        if size[i] < 0:
            continue
        at = np.int64(start[i])
        end = at + size[i]
        if with_zone:
            end -= 3
            if end < at or octets[end] != _PLUS or octets[end + 1] != _ZERO or octets[end + 2] != _ZERO:
                return False
        if end - at < _TIME_BYTES:
            return False
        day = _day(octets, at)
        time = _time(octets, at + _DAY_BYTES)
        if day == _BAD or time < 0:
            return False
        fraction = 0
        if end - at > _TIME_BYTES:
            fraction = _fraction(octets, at + _TIME_BYTES, end)
            if fraction < 0:
                return False
        values[i] = day * _DAY_US + time * 1_000_000 + fraction
    return True


@compiled
def _two(octets: Octets, at: int) -> int:
    """Two digits, or a negative number."""
    tens, ones = np.int64(octets[at]) - _ZERO, np.int64(octets[at + 1]) - _ZERO
    if tens < 0 or tens > 9 or ones < 0 or ones > 9:
        return -10_000
    value: int = tens * 10 + ones
    return value


@compiled
def _day(octets: Octets, at: int) -> int:
    """Ten bytes as days since 1970-01-01, or `_BAD`."""
    year = _two(octets, at) * 100 + _two(octets, at + 2)
    month, day = _two(octets, at + 5), _two(octets, at + 8)
    if octets[at + 4] != _MINUS or octets[at + 7] != _MINUS or year < 1 or month < 1 or month > 12 or day < 1:
        return _BAD
    longest = 31
    if month in (4, 6, 9, 11):
        longest = 30
    elif month == 2:
        longest = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    if day > longest:
        return _BAD
    # The year begins in March, so that the leap day is its last; 719468 days lie before 1970-01-01.
    if month < 3:
        year -= 1
        month += 12
    return year * 365 + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 1 - 719_468


@compiled
def _time(octets: Octets, at: int) -> int:
    """` HH:MM:SS` as seconds of a day, or a negative number."""
    hour, minute, second = _two(octets, at + 1), _two(octets, at + 4), _two(octets, at + 7)
    if octets[at] != _BLANK or octets[at + 3] != _COLON or octets[at + 6] != _COLON:
        return -1
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return -1
    return hour * 3600 + minute * 60 + second


@compiled
def _fraction(octets: Octets, at: int, end: int) -> int:
    """`.` and one to six digits as microseconds, or a negative number."""
    digits = end - at - 1
    if octets[at] != _POINT or digits < 1 or digits > _FRACTION_DIGITS:
        return -1
    value = 0
    for place in range(at + 1, end):
        digit = np.int64(octets[place]) - _ZERO
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
    for _ in range(_FRACTION_DIGITS - digits):
        value *= 10
    return value
