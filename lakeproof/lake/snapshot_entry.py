"""A snapshot enters the lake: the rows a table should have at the cycle's end, and the correction that makes it so.

Copying a snapshot belongs to `lakeproof.pipeline.bootstrap`; which one enters when to `plan`; committing to `table_cycle`.

    desired@X = snapshot@C + net change of (C, X]
    kept@X    = persisted  + net change of (its place, X]          (a table that is in the lake already)
    correction = desired@X - kept@X                                written to history as it is
    current takes the net change and the correction together, in one commit

So the first entry of a table, a re-snapshot and the way out of being held are one road; a table never steps back. Everything
is computed in Spark; nothing grows on the driver with the table but the list of its chunks.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.lake.columns import (
    DUP,
    FROM,
    KEY,
    ORD,
    TEXT,
    col,
    current_columns,
    keeps_key,
    key_value,
    landing_schema,
    merge_key,
    named,
    pick,
    placed,
    row_key,
)
from lakeproof.lake.correction import Correction, correct, left_over
from lakeproof.lake.exact import quoted
from lakeproof.lake.narrowing import Narrowed, narrow
from lakeproof.lake.net_change import NetChange
from lakeproof.lake.snapshot_documents import SnapshotTable
from lakeproof.lake.work import Entering
from lakeproof.landing.chain import Chain
from lakeproof.landing.reader import Slice, slices
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion
from lakeproof.values.types import spark_type

DIGEST = "_lp_digest"
_FILE = "_lp_file"
_START = "_lp_start"


@dataclass(frozen=True, slots=True)
class Difference:
    """What history keeps of a snapshot's entry beside the range's changes; `narrowed` is what was compared.

    `kept` are the persisted rows after `change`, those of narrowed buckets, with their digest.
    """

    change: NetChange
    correction: Correction
    narrowed: Narrowed
    kept: DataFrame

    def net(self, insertions: DataFrame) -> NetChange:
        """What current commits; `insertions` are the correction's with the `_lp_ord` that history gives them.

        Every row keeps the place in history that it has: a snapshot's own ordinals are not in history here.
        """
        shape, change = self.change.shape, self.change
        columns, key = current_columns(shape), merge_key(shape)
        retracted = pick(self.correction.retractions, key)
        come = insertions.withColumn(FROM, F.lit(None).cast("string"))
        images = pick(come.withColumn(DUP, F.col(ORD)), columns)
        if not shape.is_bag:
            # A lake that went wrong may have a key twice: all its rows go, so what is desired of it comes whole.
            retracted = retracted.distinct()
            touched = _by_key(self.kept, retracted, key, "left_semi", null_safe=True)
            images = images.unionAll(pick(left_over(touched, self.correction, DIGEST), columns))
        if change.images is not None:
            images = images.unionAll(without(change.images, retracted, key, null_safe=True))
        deletes = retracted if change.deletes is None else retracted.unionAll(pick(change.deletes, key)).distinct()
        return NetChange(shape, None if change.wipe else deletes, images, change.wipe)

    def release(self) -> None:
        """Give back what is kept until both are written."""
        self.correction.release()
        self.narrowed.release()


def files_since(chain: Chain, table: TableName, entering: Entering, end: Lsn) -> list[Slice]:
    """The table's files after its snapshot, up to `end`; of one that was born, those of its OID alone.

    Before it another one may have had its name.
    """
    found = slices(chain, entering.consistent_point, end, table)
    return [f for f in found if entering.key is not None or f.file.oid == entering.table.version.oid]


def snapshot_rows(
    session: SparkSession, shape: SchemaVersion, table: SnapshotTable, folder: str, first_ord: int
) -> DataFrame:
    """A snapshot's rows: current's columns and `_lp_ord`, which runs from `first_ord` on, chunk by chunk.

    `folder` is the snapshot's place; a row's ordinal depends on the files alone, so it is the same at every attempt.
    """
    if not table.chunks:
        return empty_rows(session, shape)
    starts = []
    for chunk in table.chunks:
        starts.append((chunk.path.rpartition("/")[2], first_ord))
        first_ord += chunk.rows
    bases = F.broadcast(session.createDataFrame(starts, f"{_FILE} string, {_START} bigint"))
    files = session.read.schema(landing_schema(shape, [f"{TEXT} string"])).parquet(
        *(f"{folder}/{c.path}" for c in table.chunks)
    )
    placed = files.select(
        "*", F.col("_metadata.file_name").alias("_lp_name"), F.col("_metadata.row_index").alias("_lp_i")
    )
    placed = placed.join(bases, F.col("_lp_name") == F.col(_FILE))
    rows = placed.select((F.col(_START) + F.col("_lp_i")).alias(ORD), F.col(TEXT), *named(shape))
    return as_current(shape, rows)


def as_current(shape: SchemaVersion, rows: DataFrame) -> DataFrame:
    """Rows with the table's columns, `_lp_text` and `_lp_ord` → current's columns and `_lp_ord`."""
    if keeps_key(shape):
        rows = rows.withColumn(KEY, key_value(shape))
    if shape.is_bag:
        rows = rows.withColumn(DUP, F.col(ORD))
    if FROM not in rows.columns:
        rows = rows.withColumn(FROM, F.lit(None).cast("string"))
    return pick(rows, placed(shape))


def empty_rows(session: SparkSession, shape: SchemaVersion) -> DataFrame:
    """No rows, with current's columns and `_lp_ord`."""
    types = {c.name: spark_type(c) for c in shape.columns} | {
        TEXT: "string",
        KEY: "string",
        DUP: "bigint",
        ORD: "bigint",
        FROM: "string",
    }
    return session.createDataFrame([], ", ".join(f"{quoted(n)} {types[n]}" for n in placed(shape)))


def with_net_change(rows: DataFrame, net: NetChange) -> DataFrame:
    """Rows of a table (current's columns) after a net change, current's columns."""
    columns = current_columns(net.shape)
    kept = pick(rows, columns)
    if net.wipe:
        kept = kept.limit(0)
    elif net.deletes is not None:
        kept = without(kept, net.deletes, merge_key(net.shape), null_safe=net.null_safe)
    return kept if net.images is None else kept.unionAll(pick(net.images, columns))


def without(rows: DataFrame, gone: DataFrame, key: tuple[str, ...], *, null_safe: bool) -> DataFrame:
    """The rows whose key is not in `gone`."""
    return _by_key(rows, gone, key, "left_anti", null_safe=null_safe)


def _by_key(rows: DataFrame, keys: DataFrame, key: tuple[str, ...], how: str, *, null_safe: bool) -> DataFrame:
    names = [f"_lp_gone_{i}" for i in range(len(key))]
    keys = keys.select(*(col(k).alias(n) for k, n in zip(key, names, strict=True)))
    condition = F.lit(True)
    for k, n in zip(key, names, strict=True):
        condition = condition & (col(k).eqNullSafe(F.col(n)) if null_safe else col(k) == F.col(n))
    return rows.join(keys, condition, how)


def difference(snapshot: DataFrame, after: NetChange, persisted: DataFrame, change: NetChange) -> Difference:
    """What makes a table in the lake what the snapshot and the changes after it say, in one commit.

    `after` is the net change of (C, X], relative to `snapshot`; `change` that of the table's own range, relative to
    `persisted`. Rows of another shape's key have NULL in this one's; whether such rows go is for the caller to look at.
    """
    shape = change.shape
    narrowed = narrow(shape, with_net_change(snapshot, after), with_net_change(persisted, change))
    desired = narrowed.desired.withColumn(DIGEST, row_key(shape))
    kept = narrowed.persisted.withColumn(DIGEST, row_key(shape))
    order = F.col(DUP) if shape.is_bag else None
    return Difference(change, correct(desired, kept, DIGEST, order), narrowed, kept)
