"""The net change of a table's changes in a range: the keys of the rows to delete, and the rows to insert.

Reading the changes belongs to `rows.landing_rows`, writing the result to `delta.apply`; the same in Arrow belongs to
`key_fold`.

    landing rows ─► after the last truncate ─► keyed table: the newest row of each key
                                               configured key under FULL: rows gone and come, by digest
                                               bag: the same, k of n equal rows

A bag's rows are counted by digest: +1 for an insert or a new image, -1 for a deleted or an old row. Surplus rows are
inserted (each copy under its own `_lp_dup`, the ordinal of its arrival), missing ones deleted (the copies that arrived
first). A bag that has fewer copies than the stream deletes is refused: then the lake is not what the source was.

A key move needs no care here: its old half is a change of the old key (its row is deleted), its new half a change of the new
key. Under identity FULL every update brings its old row, and a key may be unique only at commit: so rows are counted by
digest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakeproof.change_counts import ChangeCounts
from lakeproof.hidden_columns import DUP, FROM, KEY, OP, ORD, UNCHANGED, scratch
from lakeproof.lake.columns import current_columns, has_old_rows, key_may_be_null, merge_key
from lakeproof.lake.fold.key_fold import ROW_NOT_THERE
from lakeproof.lake.fold.toast import MarkedEvents, mark
from lakeproof.lake.fold.unchanged_values import ANY_ROW, resolve_history
from lakeproof.lake.records.held import WayOut
from lakeproof.lake.rows.change import FIRST, AllRows, NetChange, Removed
from lakeproof.lake.rows.columns import col, key_value, pick, row_key
from lakeproof.lake.rows.correction import NET, first_changes, join_on_key, net_counts
from lakeproof.lake.rows.file_rows import DIGEST
from lakeproof.lake.rows.landing_rows import LandedChanges
from lakeproof.lake.rows.memory import persist
from lakeproof.lake.rows.refusal import refuse_table
from lakeproof.schema import SchemaVersion
from lakeproof.values.exact_kinds import FIXED_SIZE_KINDS

NOT_UNIQUE = "the configured key is not unique"
# The ordinal of the row to insert under a key, among the keys whose rows differ.
IMAGE = scratch("image")
_INSERTED, _DELETED = scratch("inserted"), scratch("deleted")
_NEWEST, _SINCE = scratch("newest"), scratch("since")
_EXISTING = scratch("existing")


@dataclass(frozen=True, slots=True)
class Summed:
    """Changes added up: the `keys` whose rows differ, with `__lp_first`, and the `images`; `truncate`: first, all rows go.

    Evaluating `keys` may refuse. They are None if no change presupposes a row, nor the lack of one.
    """

    keys: DataFrame | None
    images: DataFrame
    truncate: bool

    def net(self, schema: SchemaVersion, presupposed: int | None = None) -> NetChange[DataFrame]:
        """Return the net change; so many of the keys presuppose a row."""
        removed: Removed[DataFrame] | AllRows | None = None
        if self.truncate:
            removed = AllRows(presupposed or 0)
        elif self.keys is not None:
            removed = Removed(merge_key(schema), self.keys, key_may_be_null(schema), presupposed)
        return NetChange(removed, self.images)


@dataclass(frozen=True, slots=True)
class ResolvedChanges:
    """A range ready to be written: `events` for history (with `_lp_key` and `_lp_from`), and their net change.

    `persisted` are frames to unpersist when both are written.
    """

    events: DataFrame
    net: NetChange[DataFrame]
    counts: ChangeCounts
    persisted: tuple[DataFrame, ...] = ()

    def release(self) -> None:
        """Give back what was kept for the two writes."""
        for frame in self.persisted:
            frame.unpersist()


def resolve_range(session: SparkSession, changes: LandedChanges, base: DataFrame | None) -> ResolvedChanges:
    """Find the holders of unchanged values, and add the changes up.

    `base` is the table before the range (current's columns), None if empty. Evaluating the frames may raise refusals
    (see `refusal`).
    """
    schema = changes.schema
    keyed = LandedChanges(schema, changes.frame.withColumn(KEY, key_value(schema)), changes.counts)
    truncates = _truncates(changes)
    persisted: tuple[DataFrame, ...] = ()
    marked: MarkedEvents | None = None
    if changes.counts.unchanged > 0:
        marked = mark(session, keyed, merge_key(schema), base, truncates)
        events, persisted = marked.events, marked.kept
    else:
        events = keyed.frame.drop(UNCHANGED).withColumn(FROM, F.lit(None).cast("string"))
    live = events.where(F.col(ORD) > F.lit(truncates[-1])) if truncates else events
    summed = add_up(schema, live.where(F.col(OP) != "truncate"), changes.counts, base, truncate=bool(truncates))
    presupposed = None
    if summed.keys is not None:
        persisted = (*persisted, persist(summed.keys))
        try:
            presupposed = int(summed.keys.agg(F.count(FIRST)).collect()[0][0])
        except BaseException:
            for frame in persisted:
                frame.unpersist()
            raise
    resolved = ResolvedChanges(events, summed.net(schema, presupposed), changes.counts, persisted)
    if marked is None:
        return resolved
    try:
        images = resolve_history(schema, summed.images, marked.sources, ANY_ROW)
    except BaseException:
        resolved.release()
        raise
    return replace(resolved, net=replace(resolved.net, images=images))


def add_up(
    schema: SchemaVersion, events: DataFrame, counts: ChangeCounts, base: DataFrame | None, *, truncate: bool
) -> Summed:
    """Add up `events` (with `_lp_key` and `_lp_from`, after the last truncate); images are as complete as they are."""
    keys: DataFrame | None = None
    if schema.is_bag:
        keys, images = bag_net_change(schema, events, counts, None if truncate else base)
    elif counts.inserts_only and not has_old_rows(schema):
        images = pick(events, current_columns(schema))
    elif has_old_rows(schema):
        keys = _by_digest(schema, events, counts, None if truncate else base)
        chosen = events.join(keys.select(IMAGE), F.col(ORD) == F.col(IMAGE), "left_semi")
        images = pick(chosen, current_columns(schema))
    else:
        keys, images = first_changes(schema, events, moves=counts.befores > 0), _newest_rows(schema, events)
    return Summed(keys, images, truncate)


def _newest_rows(schema: SchemaVersion, events: DataFrame) -> DataFrame:
    """Return the rows to insert: each key's newest row, if it is an after-image and not the sign that the key is gone."""
    newest_first = Window.partitionBy(*(col(k) for k in merge_key(schema))).orderBy(F.col(ORD).desc())
    newest = events.withColumn(RANK, F.row_number().over(newest_first)).where(F.col(RANK) == 1)
    return pick(newest.where(F.col(OP).isin("insert", "update")), current_columns(schema))


def _by_digest(schema: SchemaVersion, events: DataFrame, counts: ChangeCounts, base: DataFrame | None) -> DataFrame:
    """Return the keys whose rows differ, with `__lp_first`, and in `__lp_image` the ordinal of the row to insert.

    Evaluating it refuses a key under which there would be two rows.
    """
    key = merge_key(schema)
    counted = (
        signed(schema, events)
        .groupBy(*(col(k) for k in key), DIGEST)
        .agg(
            F.sum(SIGN).alias(NET),
            F.max(F.when(F.col(SIGN) > 0, F.col(ORD))).alias(_NEWEST),
            F.min(F.when(F.col(SIGN) < 0, F.col(ORD))).alias(_SINCE),
        )
        .where(F.col(NET) != 0)
    )
    by_key = counted.groupBy(*(col(k) for k in key)).agg(
        F.sum(F.greatest(F.col(NET), F.lit(0))).alias(_INSERTED),
        F.sum(F.greatest(-F.col(NET), F.lit(0))).alias(_DELETED),
        F.max(F.when(F.col(NET) > 0, F.col(_NEWEST))).alias(IMAGE),
        F.min(F.when(F.col(NET) < 0, F.col(_SINCE))).alias(FIRST),
    )
    # No index limits the size of a key that a person configured: texts are shuffled.
    fixed = {c.name for c in schema.columns if c.kind in FIXED_SIZE_KINDS}
    by_key = _with_existing(by_key, key, base, broadcast=counts.rows <= FEW_KEYS_MAX and fixed.issuperset(key))
    left = F.col(_EXISTING) + F.col(_INSERTED) - F.col(_DELETED)
    twice = refuse_table(NOT_UNIQUE, "bigint", WayOut.OTHER_KEY_THEN_SNAPSHOT)
    is_refused = (F.col(_INSERTED) > 1) | (F.col(_DELETED) > 1) | ((F.col(_INSERTED) == 1) & (left > 1))
    return by_key.withColumn(IMAGE, F.when(is_refused, twice).otherwise(F.col(IMAGE)))


def _with_existing(by_key: DataFrame, key: tuple[str, ...], base: DataFrame | None, *, broadcast: bool) -> DataFrame:
    """Add `__lp_existing`: how many rows with the key the lake has, by one scan of its key columns."""
    if base is None:
        return by_key.withColumn(_EXISTING, F.lit(0))
    inserted = pick(by_key.where(F.col(_INSERTED) > 0), key)
    inserted = F.broadcast(inserted) if broadcast else inserted
    existing = join_on_key(pick(base, key), inserted, key, "left_semi", null_safe=True)
    existing = existing.groupBy(*(col(k) for k in key)).agg(F.count(F.lit(1)).alias(_EXISTING))
    return join_on_key(by_key, existing, key, "left", null_safe=True).fillna(0, [_EXISTING])


def _truncates(changes: LandedChanges) -> list[int]:
    """Return the ordinals of the range's truncates, in order: a few per cycle at most, so they are brought to the driver."""
    if changes.counts.truncates == 0:
        return []
    rows = changes.frame.where(F.col(OP) == "truncate").select(ORD).toArrow()
    return sorted(rows.column(ORD).to_pylist())


# Up to this many rows in a range, the digests or keys to look for are sent to every task; more are shuffled.
FEW_KEYS_MAX = 1_000_000
SIGN, RANK = scratch("sign"), scratch("rank")
_COPY, _STORED = scratch("copy"), scratch("stored")


def signed(schema: SchemaVersion, events: DataFrame) -> DataFrame:
    """Return the events with `__lp_digest` of the row and `__lp_sign`: +1 for an inserted row, -1 for a deleted one."""
    return events.withColumn(DIGEST, row_key(schema)).withColumn(SIGN, _sign())


def bag_net_change(
    schema: SchemaVersion, events: DataFrame, counts: ChangeCounts, base: DataFrame | None
) -> tuple[DataFrame | None, DataFrame]:
    """Return (deletes by `_lp_key` and `_lp_dup`, with `__lp_first`; images).

    `base` has current's columns, None if empty.
    """
    if counts.inserts_only:
        return None, pick(events.withColumn(DUP, F.col(ORD)), current_columns(schema))
    totals = net_counts(events, KEY, _sign()).withColumnRenamed(KEY, DIGEST)
    inserted = events.where(F.col(OP).isin("insert", "update")).withColumn(DUP, F.col(ORD))
    images = _ranked(inserted, F.col(DUP).desc()).join(
        totals, (F.col(KEY) == F.col(DIGEST)) & (F.col(RANK) <= F.col(NET)), "left_semi"
    )
    missing = totals.where(F.col(NET) < 0)
    deletes = _oldest_copies(missing, base, broadcast=counts.rows <= FEW_KEYS_MAX)
    return deletes.withColumn(FIRST, F.monotonically_increasing_id()), pick(images, current_columns(schema))


def _sign() -> SparkColumn:
    return F.when(F.col(OP).isin("insert", "update"), 1).otherwise(-1)


def _ranked(rows: DataFrame, order: SparkColumn) -> DataFrame:
    """Add `__lp_rank`, from 1 among the rows of equal `_lp_key`."""
    return rows.withColumn(RANK, F.row_number().over(Window.partitionBy(KEY).orderBy(order)))


def _oldest_copies(missing: DataFrame, base: DataFrame | None, *, broadcast: bool) -> DataFrame:
    """Return the copies to delete: as many of each digest as are missing, those that arrived first."""
    copies = missing.select(DIGEST, F.explode(F.sequence(F.lit(1), (-F.col(NET)).cast("int"))).alias(_COPY))
    short = refuse_table(ROW_NOT_THERE, "bigint")
    if base is None:
        return copies.select(F.col(DIGEST).alias(KEY), short.alias(DUP))
    digests = missing.select(DIGEST)
    digests = F.broadcast(digests) if broadcast else digests
    stored = base.select(col(KEY), col(DUP)).join(digests, F.col(KEY) == F.col(DIGEST), "left_semi")
    stored = _ranked(stored, F.col(DUP)).select(F.col(KEY).alias(_STORED), DUP, RANK)
    on_copy = (F.col(DIGEST) == F.col(_STORED)) & (F.col(_COPY) == F.col(RANK))
    matched = copies.join(stored, on_copy, "left")
    return matched.select(F.col(DIGEST).alias(KEY), F.coalesce(F.col(DUP), short).alias(DUP))
