"""The keys of a range's rows in memory: each key's first and last change, and whether the first presupposes a row.

The same by Spark, and what is done with it, belong to `preconditions`. Spark is not imported here.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.hidden_columns import OP, ORD, TEXT, scratch
from lakeproof.schema import SchemaVersion
from lakeproof.values.exact_kinds import key_columns

# Beside a key: a number if a row is presupposed (the ordinal of the key's first change), else NULL.
FIRST = scratch("first")


def first_changes_in_memory(key: Sequence[str], live: pa.Table) -> pa.Table:
    """Return each key of `live` rows, none of which has NULL in it, and `__lp_first`, as `first_changes` does."""
    return presupposed(key, live.filter(pc.is_in(live.column(ORD), ordinals_by_key(live, key, "min"))), live)


def presupposed(key: Sequence[str], firsts: pa.Table, live: pa.Table) -> pa.Table:
    """Return the keys of `firsts`, each key's first change of those in `live`, with `__lp_first`."""
    firsts = firsts.select([*key, ORD, OP])
    old = pc.add(live.filter(pc.equal(live.column(OP), "before")).column(ORD), 1).combine_chunks()
    presupposes = pc.and_(pc.not_equal(firsts.column(OP), "insert"), pc.invert(pc.is_in(firsts.column(ORD), old)))
    nothing = pa.scalar(None, pa.int64())
    return firsts.select(list(key)).append_column(FIRST, pc.if_else(presupposes, firsts.column(ORD), nothing))


def ordinals_by_key(rows: pa.Table, key: Sequence[str], choice: str) -> pa.Array:
    """Return each key's least (`min`) or greatest (`max`) `_lp_ord` of rows in memory."""
    # By number: Arrow takes a name that begins with a dot for a path.
    numbers = [str(number) for number in range(len(key))]
    numbered = rows.select([*key, ORD]).rename_columns([*numbers, ORD])
    grouped = numbered.group_by(numbers, use_threads=False).aggregate([(ORD, choice)])
    return grouped.column(f"{ORD}_{choice}").combine_chunks()


def has_null_key(schema: SchemaVersion, rows: pa.Table) -> bool:
    """True if a row in memory has NULL in its key, rather than a value that the column's type can't hold."""
    for column in key_columns(schema):
        null = rows.filter(pc.is_null(rows.column(column.name)))
        beside = pc.match_substring(null.column(TEXT), f'"{column.attnum}":')
        if not pc.all(pc.fill_null(beside, fill_value=False), min_count=0).as_py():
            return True
    return False
