"""Rows of PostgreSQL and of Spark as one multiset, to be compared by value.

Running the queries does not belong here. A number is the same with more zeros, as the dialects give sums other types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import Any


def bag(rows: Iterable[Iterable[Any]]) -> Counter[tuple[str, ...]]:
    """Return how often each row comes."""
    return Counter(tuple(map(_text, row)) for row in rows)


def _text(value: Any) -> str:
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        number = Decimal(value)
        return "0" if not number else format(number.normalize(), "f")
    return f"{type(value).__name__} {value}"
