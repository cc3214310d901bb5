"""Parses dates and timestamps of the years 1 to 9999 from spans of a buffer; compiled.

`cast.py` handles infinities, BC and later years: as in `numbers.py`, one text that is not in the usual form ends the
loop with False, and a span of negative size has no text.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lakeproof.values.compiled import Octets, Places, compiled

_ZERO, _MINUS, _BLANK, _COLON, _POINT, _PLUS = b"0- :.+"
_BAD = -(1 << 63)
_DAY_BYTES, _TIME_BYTES = len("YYYY-MM-DD"), len("YYYY-MM-DD HH:MM:SS")
_FRACTION_DIGITS = 6
_DAY_US = 86_400_000_000


@compiled
def parse_days(octets: Octets, start: Places, size: Places, values: npt.NDArray[np.int32]) -> bool:
    """Parse `YYYY-MM-DD` to days since 1970-01-01."""
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
    """Parse `YYYY-MM-DD HH:MM:SS[.ffffff]`, then `+00` if `with_zone`, to microseconds since 1970-01-01."""
    for i in range(len(size)):
        values[i] = 0
        if size[i] < 0:
            continue
        offset = np.int64(start[i])
        end = offset + size[i]
        if with_zone:
            end -= 3
            if end < offset or octets[end] != _PLUS or octets[end + 1] != _ZERO or octets[end + 2] != _ZERO:
                return False
        if end - offset < _TIME_BYTES:
            return False
        day = _day(octets, offset)
        time = _time(octets, offset + _DAY_BYTES)
        if day == _BAD or time < 0:
            return False
        fraction = 0
        if end - offset > _TIME_BYTES:
            fraction = _fraction(octets, offset + _TIME_BYTES, end)
            if fraction < 0:
                return False
        values[i] = day * _DAY_US + time * 1_000_000 + fraction
    return True


@compiled
def _two(octets: Octets, offset: int) -> int:
    """Parse two digits; a negative number if they are none."""
    tens, ones = np.int64(octets[offset]) - _ZERO, np.int64(octets[offset + 1]) - _ZERO
    if tens < 0 or tens > 9 or ones < 0 or ones > 9:
        return -10_000
    value: int = tens * 10 + ones
    return value


@compiled
def _day(octets: Octets, offset: int) -> int:
    """Parse ten bytes to days since 1970-01-01, or `_BAD`."""
    year = _two(octets, offset) * 100 + _two(octets, offset + 2)
    month, day = _two(octets, offset + 5), _two(octets, offset + 8)
    if octets[offset + 4] != _MINUS or octets[offset + 7] != _MINUS or year < 1 or month < 1 or month > 12 or day < 1:
        return _BAD
    longest = 31
    if month in (4, 6, 9, 11):
        longest = 30
    elif month == 2:
        longest = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    if day > longest:
        return _BAD
    # The year begins in March, so that the leap day is its last; there are 719468 days before 1970-01-01.
    if month < 3:
        year -= 1
        month += 12
    return year * 365 + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 1 - 719_468


@compiled
def _time(octets: Octets, offset: int) -> int:
    """Parse ` HH:MM:SS` to seconds of a day, or a negative number."""
    hour, minute, second = _two(octets, offset + 1), _two(octets, offset + 4), _two(octets, offset + 7)
    if octets[offset] != _BLANK or octets[offset + 3] != _COLON or octets[offset + 6] != _COLON:
        return -1
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return -1
    return hour * 3600 + minute * 60 + second


@compiled
def _fraction(octets: Octets, offset: int, end: int) -> int:
    """Parse `.` and one to six digits to microseconds, or a negative number."""
    digits = end - offset - 1
    if octets[offset] != _POINT or digits < 1 or digits > _FRACTION_DIGITS:
        return -1
    value = 0
    for place in range(offset + 1, end):
        digit = np.int64(octets[place]) - _ZERO
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
    for _ in range(_FRACTION_DIGITS - digits):
        value *= 10
    return value
