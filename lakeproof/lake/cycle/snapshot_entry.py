"""Applying a snapshot: the rows that a table should have at the cycle's end, and the correction that makes it so.

Copying a snapshot belongs to `lakeproof.snapshot`; choosing the cycle that applies it to `lakeproof.lake.planning`;
committing to `table`.

    desired@X = snapshot@C + net change of (C, X]
    kept@X    = persisted  + net change of (its place, X]          (a table that is in the lake already)
    correction = desired@X - kept@X                                written to history as it is
    current takes the net change and the correction together, in one commit

So the first snapshot of a table, a re-snapshot and the way out of being held are one path; a table never steps back.
Everything is computed in Spark; nothing grows on the driver with the table but the list of its chunks.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeproof.hidden_columns import DUP, FROM, ORD, scratch
from lakeproof.lake.columns import current_columns, key_may_be_null, merge_key
from lakeproof.lake.cycle.task import SnapshotEntry
from lakeproof.lake.fold.table_state import with_net_change
from lakeproof.lake.rows.bucket_diff import BucketDiff, bucket_diff
from lakeproof.lake.rows.change import NetChange
from lakeproof.lake.rows.columns import pick, row_key
from lakeproof.lake.rows.correction import Correction, correct, left_over
from lakeproof.lake.rows.matching import join_on_key
from lakeproof.landing.chain import Chain
from lakeproof.landing.reader import Slice, slices
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion

DIGEST = scratch("digest")


@dataclass(frozen=True, slots=True)
class EntryCorrection:
    """The correction that history keeps of a snapshot's entry, beside the range's own `change`.

    `compared` are the rows of the buckets that differ; `kept` are the persisted rows after `change` in those buckets, with
    their digest.
    """

    schema: SchemaVersion
    change: NetChange
    correction: Correction
    compared: BucketDiff
    kept: DataFrame

    @property
    def retractions(self) -> DataFrame:
        """The rows that the correction deletes."""
        return self.correction.retractions

    @property
    def insertions(self) -> DataFrame:
        """The rows that the correction inserts."""
        return self.correction.insertions

    def net(self, insertions: DataFrame) -> NetChange:
        """Return the change that current commits; `insertions` are the correction's with the `_lp_ord` that history gives.

        Every row keeps the place in history that it has: a snapshot's own ordinals are not in history here.
        """
        schema, change = self.schema, self.change
        columns, key = current_columns(schema), merge_key(schema)
        retracted = pick(self.retractions, key)
        images = as_inserted(schema, insertions)
        if not schema.is_bag:
            # A damaged lake may have a key twice: then all its rows are deleted, and the desired row is inserted whole.
            retracted = retracted.distinct()
            touched = join_on_key(self.kept, retracted, key, "left_semi", null_safe=True)
            images = images.unionAll(pick(left_over(touched, self.correction, DIGEST), columns))
        if change.images is not None:
            images = images.unionAll(join_on_key(change.images, retracted, key, "left_anti", null_safe=True))
        deletes = retracted if change.deletes is None else retracted.unionAll(pick(change.deletes, key)).distinct()
        null_safe = key_may_be_null(schema)
        return NetChange(key, None if change.truncate else deletes, images, change.truncate, null_safe=null_safe)

    def release(self) -> None:
        """Give back what is kept until both are written."""
        self.correction.release()
        self.compared.release()


def as_inserted(schema: SchemaVersion, rows: DataFrame) -> DataFrame:
    """Return current's rows of whole rows that history gets, too: each has its row's place there, and names no other."""
    own = {FROM: F.lit(None).cast("string"), DUP: F.col(ORD)}
    return pick(rows.withColumns(own), current_columns(schema))


def files_since(chain: Chain, table: TableName, entry: SnapshotEntry, end: Lsn) -> list[Slice]:
    """Return the table's files after its snapshot, up to `end`; for a table created in the stream only files of its OID.

    An earlier table may have had the same name.
    """
    files = slices(chain, entry.consistent_point, end, table)
    return [f for f in files if entry.key is not None or f.file.oid == entry.table.version.oid]


def entry_correction(
    schema: SchemaVersion, desired: DataFrame, persisted: DataFrame, change: NetChange
) -> EntryCorrection:
    """Return what turns a table of the lake into `desired`, in one commit together with its own `change`.

    `change` is the net change of the table's own range, relative to `persisted`. Rows with another schema version's key have
    NULL in this one's; the caller checks whether such rows are deleted.
    """
    compared = bucket_diff(schema, desired, with_net_change(schema, persisted, change))
    desired_rows = compared.desired.withColumn(DIGEST, row_key(schema))
    kept = compared.persisted.withColumn(DIGEST, row_key(schema))
    order = F.col(DUP) if schema.is_bag else None
    return EntryCorrection(schema, change, correct(desired_rows, kept, DIGEST, order), compared, kept)
