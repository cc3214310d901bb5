"""The keys of a range's rows in memory: their numbers, and whether a key's first change presupposes a row.

The same by Spark, and what is done with it, belong to `preconditions`. Spark is not imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.hidden_columns import OP, ORD, scratch

# Beside a key: a number if a row is presupposed (the ordinal of the key's first change), else NULL.
FIRST = scratch("first")
Places: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


def presupposed(key: Sequence[str], firsts: pa.Table, live: pa.Table) -> pa.Table:
    """Return the keys of `firsts`, each key's first change of those in `live`, with `__lp_first`."""
    firsts = firsts.select([*key, ORD, OP])
    old = pc.add(live.filter(pc.equal(live.column(OP), "before")).column(ORD), 1).combine_chunks()
    presupposes = pc.and_(pc.not_equal(firsts.column(OP), "insert"), pc.invert(pc.is_in(firsts.column(ORD), old)))
    nothing = pa.scalar(None, pa.int64())
    return firsts.select(list(key)).append_column(FIRST, pc.if_else(presupposes, firsts.column(ORD), nothing))


def codes(rows: pa.Table, key: Sequence[str]) -> tuple[Places, int]:
    """Return a number for each row, from zero on, the same for rows with the same key, and the count of keys.

    NULL is a value like any other.
    """
    numbers, count = np.zeros(rows.num_rows, np.int64), min(1, rows.num_rows)
    for name in key:
        column = rows.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        numbers = numbers * len(column.dictionary) + column.indices.to_numpy()
        count *= len(column.dictionary)
        if len(key) > 1:
            # Numbers of pairs of columns have gaps, and must not grow with each column.
            pairs = pa.array(numbers).dictionary_encode()
            numbers, count = pairs.indices.to_numpy().astype(np.int64), len(pairs.dictionary)
    return numbers, count
