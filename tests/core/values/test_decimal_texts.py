"""The digits of decimals, by a compiled loop: Python's own plain form of each is the oracle."""

from __future__ import annotations

import random
from decimal import Context, Decimal

import pyarrow as pa
import pytest

from lakeproof.values.forms_in_arrow import texts_of
from lakeproof.values.types import KINDS

_EXACT = Context(prec=60)


@pytest.mark.parametrize(
    ("precision", "scale"),
    [(38, 0), (38, 38), (38, 10), (37, 37), (20, 1), (19, 19), (18, 9), (12, 2), (9, 0), (5, 5), (1, 0), (1, 1)],
)
def test_digits_are_plain_and_as_many_as_the_type_has(precision: int, scale: int) -> None:
    """Around each power of two and of ten, of both signs, and NULL; also of a slice of an array."""
    chance, end = random.Random(precision * 100 + scale), 10**precision
    numbers = [n for k in range(127) for n in (2**k - 1, 2**k)] + [n for k in range(39) for n in (10**k - 1, 10**k)]
    numbers += [chance.randrange(10 ** chance.randint(1, precision)) for _ in range(500)]
    values = [Decimal(sign * n).scaleb(-scale, _EXACT) for n in numbers if n < end for sign in (1, -1)]
    array = pa.array([None, *values, None], pa.decimal128(precision, scale))
    texts = [None, *(format(Decimal(0) if value == 0 else value, f".{scale}f") for value in values), None]
    assert texts_of(array, KINDS["numeric"]).to_pylist() == texts
    assert texts_of(array[3:40], KINDS["numeric"]).to_pylist() == texts[3:40]
    assert texts_of(array[:0], KINDS["numeric"]).to_pylist() == []
