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
from lakeproof.lake.columns import current_columns, has_old_rows, merge_key
from lakeproof.lake.fold.replay import with_net_change
from lakeproof.lake.rows.change import AllRows, NetChange, Removed
from lakeproof.lake.rows.columns import pick, row_key
from lakeproof.lake.rows.correction import (
    NET,
    SIDE,
    BucketDiff,
    Correction,
    bucket_diff,
    correct,
    join_on_key,
    left_over,
)
from lakeproof.schema import SchemaVersion

DIGEST = scratch("digest")


@dataclass(frozen=True, slots=True)
class EntryCorrection:
    """The correction that history keeps of a snapshot's entry, beside the range's own `change`.

    `compared` are the rows of the buckets that differ; `kept` are the persisted rows after `change` in those buckets, with
    their digest. `restated` are rows to delete and rows to insert under other keys, whether they differ or not.
    """

    schema: SchemaVersion
    change: NetChange[DataFrame]
    correction: Correction
    compared: BucketDiff
    kept: DataFrame
    restated: tuple[DataFrame, DataFrame] | None = None

    @property
    def net_is_empty(self) -> bool:
        """True if there is nothing to correct; costs a job over the digests."""
        return self.correction.net.isEmpty()

    @property
    def retractions(self) -> DataFrame:
        """The rows that the correction deletes."""
        retracted = pick(self.correction.retractions, current_columns(self.schema))
        return retracted if self.restated is None else retracted.unionAll(self.restated[0])

    @property
    def insertions(self) -> DataFrame:
        """The rows that the correction inserts.

        A damaged lake may have a key twice. Whoever adds history up takes the last event of a key, so a row that stays under
        a key of which another is deleted comes again, behind the delete.
        """
        inserted = pick(self.correction.insertions, current_columns(self.schema))
        inserted = inserted if self.restated is None else inserted.unionAll(self.restated[1])
        return inserted if self.schema.is_bag else inserted.unionAll(self._staying(comes_again=True))

    def net(self, insertions: DataFrame) -> NetChange[DataFrame]:
        """Return the change that current commits; `insertions` are the correction's with the `_lp_ord` that history gives.

        Every row keeps the place in history that it has: a snapshot's own ordinals are not in history here.
        """
        schema, change = self.schema, self.change
        key = merge_key(schema)
        retracted = pick(self.retractions, key)
        images = as_inserted(schema, insertions)
        if not schema.is_bag:
            # All rows under the key are deleted, those too that stay.
            retracted = retracted.distinct()
        if has_old_rows(schema) and not schema.is_bag:
            images = images.unionAll(self._staying(comes_again=False))
        if change.images is not None:
            images = images.unionAll(join_on_key(change.images, retracted, key, "left_anti", null_safe=True))
        match change.removed:
            case AllRows():
                return NetChange(AllRows(), images)
            case Removed(_, keys):
                retracted = retracted.unionAll(pick(keys, key)).distinct()
        # By no statistics: a file may have been altered behind them, or written before the table had its key.
        return NetChange(Removed(key, retracted, null_safe=True), images)

    def _staying(self, *, comes_again: bool) -> DataFrame:
        """Return the rows that stay under keys of which a row is retracted: those that history gets again, or the others.

        If all values of a row identify it in history (identity FULL), only an equal row's delete needs that.
        """
        schema = self.schema
        key, columns = merge_key(schema), current_columns(schema)
        retracted = pick(self.retractions, key).distinct()
        touched = join_on_key(self.kept, retracted, key, "left_semi", null_safe=True)
        staying = left_over(touched, self.correction, DIGEST)
        if has_old_rows(schema):
            equal = self.correction.net.where(F.col(NET) < 0)
            staying = staying.join(equal, F.col(DIGEST) == F.col(SIDE), "left_semi" if comes_again else "left_anti")
        return pick(staying, columns)

    def release(self) -> None:
        """Give back what is kept until both are written."""
        self.correction.release()
        self.compared.release()


def as_inserted(schema: SchemaVersion, rows: DataFrame) -> DataFrame:
    """Return current's rows of whole rows that history gets, too: each has its row's place there, and names no other."""
    own = {FROM: F.lit(None).cast("string"), DUP: F.col(ORD)}
    return pick(rows.withColumns(own), current_columns(schema))


def entry_correction(
    schema: SchemaVersion, desired: DataFrame, persisted: DataFrame, change: NetChange[DataFrame]
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
