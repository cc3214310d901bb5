"""The plain digits of decimals of 128 bits, with as many after the point as their type has; compiled.

Arrow writes a small one as 1E-7, and putting the point between digits by its functions took a quarter of a row's time.
NULL and the other kinds do not belong here (`forms_in_arrow.py`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lakeproof.values.compiled import compiled

# More than 38 digits, the point, the sign and a zero before the point.
ROOM = 48
_TEN, _CHUNK, _CHUNK_DIGITS = np.uint64(10), np.uint64(10**9), 9
_HALF, _SIGN, _LOW = np.uint64(32), np.uint64(63), np.uint64(0xFFFFFFFF)
_NONE, _ONE = np.uint64(0), np.uint64(1)
_MINUS, _POINT, _ZERO = b"-.0"


@compiled
def write_decimals(
    halves: npt.NDArray[np.uint64], scale: int, octets: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32]
) -> None:
    """Write the digits of numbers, the low half of each before its high half; `octets` has `ROOM` for each."""
    digits, limbs = np.empty(ROOM, np.uint8), np.zeros(4, np.uint64)
    place = 0
    for row in range(len(offsets) - 1):
        low, high = halves[2 * row], halves[2 * row + 1]
        if high >> _SIGN:
            low, high = ~low + _ONE, ~high + (_ONE if low == 0 else _NONE)
            octets[place] = _MINUS
            place += 1
        limbs[0], limbs[1], limbs[2], limbs[3] = low & _LOW, low >> _HALF, high & _LOW, high >> _HALF
        count = _digits(limbs, digits)
        while count <= scale:
            digits[count] = _ZERO
            count += 1
        for i in range(count - 1, -1, -1):
            octets[place] = digits[i]
            place += 1
            if i == scale and i:
                octets[place] = _POINT
                place += 1
        offsets[row + 1] = place


@compiled
def _digits(limbs: npt.NDArray[np.uint64], digits: npt.NDArray[np.uint8]) -> int:
    """Write the digits of a number of 128 bits, the last one first and nine at a time; return how many these are."""
    size, count = 4, 0
    while True:
        while size and limbs[size - 1] == 0:
            size -= 1
        if not size:
            return count
        left = _NONE
        for i in range(size - 1, -1, -1):
            value = (left << _HALF) | limbs[i]
            limbs[i] = value // _CHUNK
            left = value - limbs[i] * _CHUNK
        ends = size == 1 and limbs[0] == 0
        for _ in range(_CHUNK_DIGITS):
            if ends and left == 0:
                break
            tenth = left // _TEN
            digits[count] = _ZERO + (left - tenth * _TEN)
            left, count = tenth, count + 1
