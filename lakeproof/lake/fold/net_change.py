"""What a table's changes in a range add up to: the keys whose rows go, and the rows that come.

Reading the changes belongs to `changes`, writing the result to `apply`, multisets of rows to `bags`.

    landing rows ─► after the last truncate ─► keyed table: the newest row of each key
                                               configured key under FULL: rows gone and come, by digest
                                               bag: the same, k of n equal rows (`bags`)

A key move needs no care here: its old half is a change of the old key (dead there), its new half one of the new key. Under
identity FULL every update brings its old row, and a key may be unique only at commit: so rows are counted by digest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakeproof.hidden_columns import FROM, KEY, OP, ORD, UNCHANGED
from lakeproof.lake.columns import current_columns, has_old_rows, keeps_key, merge_key
from lakeproof.lake.fold.bags import FEW_KEYS_MAX, bag_net_change, signed
from lakeproof.lake.fold.toast import Marked, mark
from lakeproof.lake.fold.unchanged_values import ANY_ROW, resolve_history
from lakeproof.lake.planning.range_counts import Counts
from lakeproof.lake.rows.columns import col, key_value, pick
from lakeproof.lake.rows.landing_rows import Changes
from lakeproof.lake.rows.memory import keep
from lakeproof.lake.rows.preconditions import FIRST, first_changes
from lakeproof.lake.rows.refusal import refuse_table
from lakeproof.schema import SchemaVersion

NOT_UNIQUE = "the configured key is not unique"


@dataclass(frozen=True, slots=True)
class NetChange:
    """`deletes`: the merge key's columns, once per row that goes (or may go); `images`: current's columns, rows that come.

    `wipe`: all rows from before the range go (`deletes` is then None). None: nothing of that kind. `nulls`: rows go that
    were written before the table had its key, so that it is NULL.
    """

    shape: SchemaVersion
    deletes: DataFrame | None
    images: DataFrame | None
    wipe: bool = False
    # Frames whose evaluation may refuse: to be persisted and evaluated before anything is committed.
    checked: tuple[DataFrame, ...] = ()
    nulls: bool = False
    # How many rows must be there for the range's changes; `deletes` then has `_lp_first` (`presupposed.py`).
    presupposed: int | None = None

    @property
    def null_safe(self) -> bool:
        """Whether NULL is a key value like others: a configured key may have it."""
        return self.nulls or (has_old_rows(self.shape) and not keeps_key(self.shape))


@dataclass(frozen=True, slots=True)
class Folded:
    """A range ready to be written: `events` for history (with `_lp_key` and `_lp_from`), and their net change.

    `persisted` are frames to unpersist when both are written.
    """

    events: DataFrame
    net: NetChange
    counts: Counts
    persisted: tuple[DataFrame, ...] = ()

    def release(self) -> None:
        """Give back what was kept for the two writes."""
        for frame in self.persisted:
            frame.unpersist()


def fold(session: SparkSession, changes: Changes, base: DataFrame | None) -> Folded:
    """Mark what is unchanged and add the changes up.

    `base` is the table before the range (current's columns), None if empty. Evaluating the frames may raise refusals
    (see `refusal`).
    """
    shape = changes.shape
    keyed = Changes(shape, changes.frame.withColumn(KEY, key_value(shape)), changes.counts)
    truncates = _truncates(changes)
    persisted: tuple[DataFrame, ...] = ()
    marked: Marked | None = None
    if changes.counts.unchanged > 0:
        marked = mark(session, keyed, merge_key(shape), base, truncates)
        events, persisted = marked.events, marked.kept
    else:
        events = keyed.frame.drop(UNCHANGED).withColumn(FROM, F.lit(None).cast("string"))
    live = events.where(F.col(ORD) > F.lit(truncates[-1])) if truncates else events
    net = net_change(shape, live.where(F.col(OP) != "truncate"), changes.counts, base, wipe=bool(truncates))
    for frame in net.checked:
        counted = keep(frame).agg(F.count(FIRST)).collect()
        net = replace(net, presupposed=int(counted[0][0]))
    folded = Folded(events, net, changes.counts, (*persisted, *net.checked))
    if marked is None or net.images is None:
        return folded
    try:
        images = resolve_history(shape, net.images, marked.sources, ANY_ROW)
    except BaseException:
        folded.release()
        raise
    return replace(folded, net=replace(net, images=images))


def net_change(
    shape: SchemaVersion, events: DataFrame, counts: Counts, base: DataFrame | None, *, wipe: bool
) -> NetChange:
    """Add up `events` (with `_lp_key` and `_lp_from`, after the last truncate); images are as complete as they are."""
    deletes: DataFrame | None = None
    if shape.is_bag:
        deletes, images = bag_net_change(shape, events, counts, None if wipe else base)
    elif counts.inserts_only and not has_old_rows(shape):
        images = pick(events, current_columns(shape))
    elif has_old_rows(shape):
        deletes = _by_digest(shape, events, counts, None if wipe else base)
        chosen = events.join(deletes.select("_lp_image"), F.col(ORD) == F.col("_lp_image"), "left_semi")
        images = pick(chosen, current_columns(shape))
    else:
        deletes, images = first_changes(shape, events, moves=counts.befores > 0), _newest(shape, events)
    return NetChange(shape, None if wipe else deletes, images, wipe, () if deletes is None else (deletes,))


def _newest(shape: SchemaVersion, events: DataFrame) -> DataFrame:
    """The rows that come: each key's newest, where that is an after-image and not the sign that the key is gone."""
    newest_first = Window.partitionBy(*(col(k) for k in merge_key(shape))).orderBy(F.col(ORD).desc())
    newest = events.withColumn("_lp_rank", F.row_number().over(newest_first)).where(F.col("_lp_rank") == 1)
    return pick(newest.where(F.col(OP).isin("insert", "update")), current_columns(shape))


def _by_digest(shape: SchemaVersion, events: DataFrame, counts: Counts, base: DataFrame | None) -> DataFrame:
    """The keys whose rows differ, `_lp_first`, and in `_lp_image` the ordinal of the row that comes.

    Refused where two rows would be.
    """
    key = merge_key(shape)
    counted = (
        signed(shape, events)
        .groupBy(*(col(k) for k in key), "_lp_digest")
        .agg(
            F.sum("_lp_sign").alias("_lp_net"),
            F.max(F.when(F.col("_lp_sign") > 0, F.col(ORD))).alias("_lp_at"),
            F.min(F.when(F.col("_lp_sign") < 0, F.col(ORD))).alias("_lp_since"),
        )
        .where(F.col("_lp_net") != 0)
    )
    newest = counted.groupBy(*(col(k) for k in key)).agg(
        F.sum(F.greatest(F.col("_lp_net"), F.lit(0))).alias("_lp_come"),
        F.sum(F.greatest(-F.col("_lp_net"), F.lit(0))).alias("_lp_go"),
        F.max(F.when(F.col("_lp_net") > 0, F.col("_lp_at"))).alias("_lp_image"),
        F.min(F.when(F.col("_lp_net") < 0, F.col("_lp_since"))).alias(FIRST),
    )
    newest = _with_place(newest, key, base, few=counts.rows <= FEW_KEYS_MAX)
    left = F.col("_lp_there") + F.col("_lp_come") - F.col("_lp_go")
    twice = refuse_table(NOT_UNIQUE, "bigint")
    refused = (F.col("_lp_come") > 1) | (F.col("_lp_go") > 1) | ((F.col("_lp_come") == 1) & (left > 1))
    return newest.withColumn("_lp_image", F.when(refused, twice).otherwise(F.col("_lp_image")))


def _with_place(newest: DataFrame, key: tuple[str, ...], base: DataFrame | None, *, few: bool) -> DataFrame:
    """`_lp_there`: how many rows with the key the lake has, by one scan of its key columns."""
    if base is None:
        return newest.withColumn("_lp_there", F.lit(0))
    names = [f"_lp_in_{i}" for i in range(len(key))]
    same = F.lit(True)
    for k, n in zip(key, names, strict=True):
        same = same & col(k).eqNullSafe(F.col(n))
    keys = base.select(*(col(k).alias(n) for k, n in zip(key, names, strict=True)))
    wanted = newest.where(F.col("_lp_come") > 0).select(*(col(k) for k in key))
    wanted = F.broadcast(wanted) if few else wanted
    found = keys.join(wanted, same, "left_semi").groupBy(*names).agg(F.count(F.lit(1)).alias("_lp_there"))
    return newest.join(found, same, "left").drop(*names).fillna(0, ["_lp_there"])


def _truncates(changes: Changes) -> list[int]:
    """The ordinals of the range's truncates, in order: a few per cycle at most, so they are brought to the driver."""
    if changes.counts.truncates == 0:
        return []
    rows = changes.frame.where(F.col(OP) == "truncate").select(ORD).collect()
    return sorted(int(r[0]) for r in rows)
