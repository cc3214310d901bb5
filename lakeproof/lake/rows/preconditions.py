"""Whether the rows that a range's changes presuppose are those that the lake has: the check that every cycle makes.

What the changes add up to belongs to `net_change` and `small_range`, finding rows by key to `by_vectors` and `by_merge`.

An update, a delete and the old half of a key move presuppose a row of their key; an insert and the new half of a move
presuppose that there is none, and so does everything after a truncate. So of the keys that a range touches the lake must
have exactly those whose first change presupposes a row, once each. Finding rows by their keys is what a commit does anyway:
the check costs a number beside each key. Rows that were lost, doubled or moved behind the stream's back are told by it at
the next change of their key, before anything is committed.

Known weakness: a range of inserts alone looks for no row, so a key that was there already is told by its next change.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_, or_

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeproof.errors import TableError
from lakeproof.hidden_columns import OP, ORD, TEXT
from lakeproof.lake.columns import merge_key
from lakeproof.lake.records.documents import RESNAPSHOT
from lakeproof.lake.rows.columns import col
from lakeproof.lake.rows.exact import exact_text
from lakeproof.lake.rows.refusal import refuse_table
from lakeproof.schema import SchemaVersion
from lakeproof.values.exact_kinds import key_columns

# Beside a key: a number of its own where a row is presupposed (the ordinal of its first change), else NULL.
FIRST = "_lp_first"
NULL_KEY = "a change has NULL in its key: the old row that PostgreSQL sent has other columns than the table's identity"
_OTHER = "_lp_other_"


class DriftedError(TableError):
    """The lake has not the rows that the changes presuppose."""


def first_changes(shape: SchemaVersion, events: DataFrame, *, moves: bool) -> DataFrame:
    """Each key of `events` (no truncate rows, with `_lp_key`) and `_lp_first`. `moves`: there are old halves of updates.

    Evaluating it refuses a key with NULL in it.
    """
    key = merge_key(shape)
    is_null = reduce(or_, (exact_text(c, c.name, TEXT).isNull() for c in key_columns(shape)))
    ordinal = F.when(is_null, refuse_table(NULL_KEY, "bigint")).otherwise(F.col(ORD))
    firsts = events.groupBy(*(col(k) for k in key)).agg(
        F.min(ordinal).alias("_lp_min"), F.min(F.when(F.col(OP) != "insert", F.col(ORD))).alias(FIRST)
    )
    presupposes = F.col("_lp_min") == F.col(FIRST)
    if moves:
        # The new half of a move comes right after the old one, under another key.
        old = events.where(F.col(OP) == "before").select((F.col(ORD) + 1).alias("_lp_new"))
        firsts = firsts.join(old, F.col("_lp_min") == F.col("_lp_new"), "left")
        presupposes = presupposes & F.col("_lp_new").isNull()
    return firsts.select(*(col(k) for k in key), F.when(presupposes, F.col(FIRST)).alias(FIRST))


def first_changes_in_memory(key: Sequence[str], live: pa.Table) -> pa.Table:
    """The same for rows in memory, none of which has NULL in its key."""
    ordinals = live.group_by(list(key), use_threads=False).aggregate([(ORD, "min")]).column(f"{ORD}_min")
    firsts = live.filter(pc.is_in(live.column(ORD), ordinals.combine_chunks())).select([*key, ORD, OP])
    old = pc.add(live.filter(pc.equal(live.column(OP), "before")).column(ORD), 1).combine_chunks()
    presupposes = pc.and_(pc.not_equal(firsts.column(OP), "insert"), pc.invert(pc.is_in(firsts.column(ORD), old)))
    nothing = pa.scalar(None, pa.int64())
    return firsts.select(list(key)).append_column(FIRST, pc.if_else(presupposes, firsts.column(ORD), nothing))


def has_null_key(shape: SchemaVersion, rows: pa.Table) -> bool:
    """Whether a row in memory has NULL in its key, and not a value that its type does not hold."""
    for column in key_columns(shape):
        null = rows.filter(pc.is_null(rows.column(column.name)))
        beside = pc.match_substring(null.column(TEXT), f'"{column.attnum}":')
        if not pc.all(pc.fill_null(beside, fill_value=False), min_count=0).as_py():
            return True
    return False


def met(rows: DataFrame, keys: DataFrame, key: Sequence[str], *, null_safe: bool, once: bool = True) -> DataFrame:
    """The `rows` that have one of the `keys`, with its `_lp_first`; NULL where not each key is there `once`."""
    others = [f"{_OTHER}{i}" for i in range(len(key))]
    keys = keys.select(*(col(k).alias(n) for k, n in zip(key, others, strict=True)), *([FIRST] if once else []))
    found = rows.join(keys, same_key(key, others, null_safe=null_safe), "inner" if once else "left_semi")
    return found.drop(*others) if once else found.withColumn(FIRST, F.lit(None).cast("bigint"))


def same_key(key: Sequence[str], others: Sequence[str], *, null_safe: bool) -> SparkColumn:
    """The condition that columns are equal, each to each."""
    pairs = zip(key, others, strict=True)
    return reduce(and_, (col(k).eqNullSafe(col(n)) if null_safe else col(k) == col(n) for k, n in pairs))


def check_rows(
    thing: str, rows: DataFrame, keys: DataFrame, key: Sequence[str], presupposed: int, *, null_safe: bool
) -> None:
    """Raise DriftedError where the rows that have one of the `keys` are not those that are presupposed. One job."""
    found = met(rows.select(*(col(k) for k in key)), keys, key, null_safe=null_safe)
    counts = found.agg(F.count(F.lit(1)), F.count_distinct(FIRST)).collect()[0]
    check_counts(thing, presupposed, rows=int(counts[0]), keys=int(counts[1]))


def check_firsts(thing: str, firsts: pa.ChunkedArray, presupposed: int) -> None:
    """The same by the `_lp_first` of the rows that were met."""
    check_counts(thing, presupposed, rows=len(firsts), keys=pc.count_distinct(firsts).as_py())


def check_counts(thing: str, presupposed: int, *, rows: int = 0, keys: int = 0) -> None:
    """Raise DriftedError unless the `rows` that were met are one of each key presupposed, of which `keys` were met."""
    told = []
    if presupposed > keys:
        told.append(f"{presupposed - keys:,} of {presupposed:,} rows that they are about are not there")
    if rows > keys:
        told.append(f"{rows - keys:,} rows are there that should not be, or twice")
    if told:
        raise DriftedError(thing, f"the lake is not what the changes follow on: {'; '.join(told)}", RESNAPSHOT)
