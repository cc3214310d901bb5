"""The check that every cycle makes: exactly the rows exist that the range's changes presuppose.

Adding the changes up belongs to `lakeproof.lake.fold`, finding rows by key to `delta.spark_places`.

An update, a delete and the old half of a key move presuppose a row with their key; an insert and the new half of a move
presuppose that there is none, and so does everything after a truncate. So of the keys that a range touches, the lake must
have exactly those whose first change presupposes a row, once each. A commit finds rows by their keys anyway: the check costs
a number beside each key. It reports rows that were lost, doubled or moved behind the stream's back at the next change of
their key, before anything is committed.

Known weakness: a range of inserts alone looks for no row, so a key that existed already is reported by its next change.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeproof.hidden_columns import OP, ORD, TEXT, scratch
from lakeproof.lake.columns import merge_key
from lakeproof.lake.rows.columns import col, pick
from lakeproof.lake.rows.exact import exact_text
from lakeproof.lake.rows.key_preconditions import check_counts
from lakeproof.lake.rows.keys_in_memory import FIRST
from lakeproof.lake.rows.matching import join_on_key
from lakeproof.lake.rows.refusal import refuse_table
from lakeproof.schema import SchemaVersion
from lakeproof.values.exact_kinds import key_columns

_MIN = scratch("min")
_NEW = scratch("new")

NULL_KEY = "a change has NULL in its key: the old row that PostgreSQL sent has other columns than the table's identity"


def first_changes(schema: SchemaVersion, events: DataFrame, *, moves: bool) -> DataFrame:
    """Return each key of `events` (no truncate rows, with `_lp_key`) and `__lp_first`.

    `moves`: there are old halves of updates. Evaluating it refuses a key with NULL in it.
    """
    key = merge_key(schema)
    is_null = reduce(or_, (exact_text(c, c.name, TEXT).isNull() for c in key_columns(schema)))
    ordinal = F.when(is_null, refuse_table(NULL_KEY, "bigint")).otherwise(F.col(ORD))
    firsts = events.groupBy(*(col(k) for k in key)).agg(
        F.min(ordinal).alias(_MIN), F.min(F.when(F.col(OP) != "insert", F.col(ORD))).alias(FIRST)
    )
    presupposes = F.col(_MIN) == F.col(FIRST)
    if moves:
        # The new half of a move comes right after the old one, under another key.
        old = events.where(F.col(OP) == "before").select((F.col(ORD) + 1).alias(_NEW))
        firsts = firsts.join(old, F.col(_MIN) == F.col(_NEW), "left")
        presupposes = presupposes & F.col(_NEW).isNull()
    return firsts.select(*(col(k) for k in key), F.when(presupposes, F.col(FIRST)).alias(FIRST))


def check_rows(
    thing: str, rows: DataFrame, keys: DataFrame, key: Sequence[str], preconditions: int, *, null_safe: bool
) -> None:
    """Raise DriftedError unless the rows that have one of the `keys`, each once, are those that are presupposed. One job."""
    matched = join_on_key(pick(rows, key), pick(keys, [*key, FIRST]), key, "inner", null_safe=null_safe)
    counts = matched.agg(F.count(F.lit(1)), F.count_distinct(FIRST)).collect()[0]
    check_counts(thing, preconditions, rows=int(counts[0]), keys=int(counts[1]))
