"""A range that fits into memory, added up without a Spark job: landing files → Arrow → two local relations.

Larger ranges, bags and identity FULL belong to `net_change`, with whose results these agree; unchanged TOAST values to
`holders`; writing the result to `delta.apply`.

A cycle over many tables with few changes each costs what its Spark jobs and plans cost, and hardly anything else. Here the
newest row of each key is found by one pass over columns in memory, and both commits are made from relations that the
driver already holds. Returns None, leaving the work to Spark, if the result could differ from Spark's or a row may have to
be refused: a value keeps its Arrow type from the landing's file to the relation, and a key's exact text is Spark's own
expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from operator import add

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.change_counts import ChangeCounts
from lakeproof.hidden_columns import FROM, KEY, ORD, UNCHANGED, scratch
from lakeproof.lake.columns import current_columns, has_old_rows, keeps_key, lake_types, merge_key, quoted
from lakeproof.lake.fold.holders import NotFolded
from lakeproof.lake.fold.net_change import ResolvedChanges
from lakeproof.lake.fold.small_range import is_refused, net_rows, read_range
from lakeproof.lake.fold.unchanged_rows import range_in_memory
from lakeproof.lake.planning.landed_range import LandedRange
from lakeproof.lake.rows.change import NetChange
from lakeproof.lake.rows.columns import col, key_value, pick, relation
from lakeproof.lake.rows.keys_in_memory import FIRST, first_changes_in_memory
from lakeproof.lake.rows.matching import join_on_key
from lakeproof.schema import SchemaVersion

# Above this number of rows Spark's own plan costs less than the driver's one thread; above this size a table takes too much
# of the driver's memory, since it is decoded and held a few times over (10 MB of a relation are 30 MB in the JVM).
SMALL_ROWS_MAX = 20_000
SMALL_BYTES_MAX = 16 << 20
# The most bytes of all fetched rows together, shared equally among them: the driver holds them.
FETCHED_BYTES_MAX = 16 << 20
_LARGE = scratch("large")


def fold_in_memory(
    session: SparkSession, landed: LandedRange, counts: ChangeCounts, base: DataFrame | None
) -> ResolvedChanges | None:
    """Return what `net_change.resolve_range` gives for the range's rows; None if Spark has to do it."""
    schema = landed.schema
    if schema.is_bag or has_old_rows(schema) or counts.rows > SMALL_ROWS_MAX:
        return None
    rows = read_range(landed, SMALL_BYTES_MAX)
    if rows is None or is_refused(schema, rows):
        return None
    rows = _with_key(session, schema, rows)
    fetch = None if base is None else partial(_fetch, base)
    try:
        whole = range_in_memory(schema, rows, fetch, lacks_values=bool(counts.unchanged))
    except NotFolded:
        return None
    events = _relation(session, schema, whole.rows)
    net = net_rows(whole.rows, merge_key(schema), inserts_only=counts.inserts_only)
    live, images = net.live, whole.completed(net.images)
    if counts.unchanged and images.nbytes > SMALL_BYTES_MAX:
        return None
    if counts.inserts_only:
        return ResolvedChanges(events, _inserted(session, schema, images), counts)
    return ResolvedChanges(events, _net(session, schema, live, images, truncate=net.truncate), counts)


def _inserted(session: SparkSession, schema: SchemaVersion, images: pa.Table) -> NetChange:
    return NetChange(merge_key(schema), images=_relation(session, schema, images.select(current_columns(schema))))


def _net(
    session: SparkSession, schema: SchemaVersion, live: pa.Table, images: pa.Table, *, truncate: bool
) -> NetChange:
    firsts = first_changes_in_memory(merge_key(schema), live)
    deletes = None if truncate else _relation(session, schema, firsts)
    preconditions = len(firsts) - firsts.column(FIRST).null_count
    rows = _relation(session, schema, images.select(current_columns(schema))).coalesce(1) if images.num_rows else None
    return NetChange(merge_key(schema), deletes, rows, truncate, preconditions=preconditions)


def _with_key(session: SparkSession, schema: SchemaVersion, rows: pa.Table) -> pa.Table:
    """Add `_lp_key` by Spark's expression over a local relation, which its optimizer evaluates without a job."""
    if not keeps_key(schema):
        return rows.append_column(KEY, pa.nulls(rows.num_rows, pa.string()))
    keyed = (
        _relation(session, schema, rows.drop_columns([UNCHANGED]))
        .select(col(ORD), key_value(schema).alias(KEY))
        .toArrow()
    )
    place = pc.index_in(rows.column(ORD), value_set=keyed.column(ORD).combine_chunks())
    return rows.append_column(KEY, keyed.column(KEY).take(place))


def _relation(session: SparkSession, schema: SchemaVersion, rows: pa.Table) -> DataFrame:
    """Return the rows as a relation that the driver holds."""
    types = {**lake_types(schema, (n for n in rows.column_names if n != FIRST)), FIRST: "bigint"}
    return relation(session, rows, ", ".join(f"{quoted(n)} {types[n]}" for n in rows.column_names))


def _fetch(base: DataFrame, keys: pa.Table, chosen: Sequence[str]) -> pa.Table:
    """Return rows of `base` by their keys; raises NotFolded if one is too large for the driver."""
    types, key = dict(base.dtypes), keys.column_names
    needed = relation(base.sparkSession, keys, ", ".join(f"{quoted(k)} {types[k]}" for k in key))
    stored = join_on_key(pick(base, chosen), F.broadcast(needed), key, "left_semi", null_safe=False)
    sized = [c for c in chosen if c not in {*key, ORD, FROM}]
    fetched = within(stored, sized, FETCHED_BYTES_MAX // keys.num_rows).toArrow()
    if pc.any(fetched.column(_LARGE)).as_py():
        raise NotFolded("a row that has an unchanged value is too large for the driver")
    return fetched


def within(rows: DataFrame, names: Sequence[str], bytes_max: int) -> DataFrame:
    """Return `rows` without the values of `names` in rows that have more bytes of them; those are marked in `__lp_large`."""
    sizes = [F.coalesce(F.octet_length(col(c).cast("string")), F.lit(0)).cast("bigint") for c in names]
    is_large = reduce(add, sizes, F.lit(0).cast("bigint")) > F.lit(bytes_max)
    kept = [F.when(~is_large, col(c)).alias(c) if c in names else col(c) for c in rows.columns]
    return rows.select(*kept, is_large.alias(_LARGE))
