"""A snapshot enters the lake: the rows a table should have at the cycle's end, and the correction that makes it so.

Copying a snapshot belongs to `lakeproof.commands.bootstrap`; which one enters when to `plan`; committing to `table_cycle`.

    desired@X = snapshot@C + net change of (C, X]
    kept@X    = persisted  + net change of (its place, X]          (a table that is in the lake already)
    correction = desired@X - kept@X                                written to history as it is
    current takes the net change and the correction together, in one commit

So the first entry of a table, a re-snapshot and the way out of being held are one road; a table never steps back. Everything
is computed in Spark; nothing grows on the driver with the table but the list of its chunks.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeproof.hidden_columns import DUP, FROM, ORD
from lakeproof.lake.columns import current_columns, merge_key
from lakeproof.lake.cycle.task import Entering
from lakeproof.lake.fold.net_change import NetChange
from lakeproof.lake.fold.table_state import _by_key, with_net_change, without
from lakeproof.lake.rows.bucket_diff import Narrowed, narrow
from lakeproof.lake.rows.columns import pick, row_key
from lakeproof.lake.rows.correction import Correction, correct, left_over
from lakeproof.landing.chain import Chain
from lakeproof.landing.reader import Slice, slices
from lakeproof.lsn import Lsn
from lakeproof.names import TableName

DIGEST = "_lp_digest"


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
