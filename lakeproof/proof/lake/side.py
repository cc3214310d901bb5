"""The lake's side of one table in a proof, read in this process or by Spark: the choice between the two, and its reason.

Reading belongs to `in_arrow` and `form`, comparing to `compare`. Both give the same sums and rows; Spark is for a
table that is too large for one process, for a cluster, and for whoever configures it for every table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeproof.lake.columns import in_lake
from lakeproof.lake.delta.arrow_rows import DeltaRows, NotInArrowError
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import TableName
from lakeproof.proof.compare import Buckets, ProofRow, number_of_buckets
from lakeproof.proof.lake.in_arrow import BYTES_MAX, ArrowSide, TooLargeError
from lakeproof.storage.source_lake import SourceLake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOO_LARGE = f"it has more than {BYTES_MAX >> 20:,} MiB"


@dataclass(frozen=True, slots=True)
class LakeReader:
    """The lake whose tables are read, and Spark for those that need it: for all of them if `by_spark` says why."""

    lake: SourceLake
    spark: SparkOnDemand
    by_spark: str | None = None

    @classmethod
    def of(cls, lake: SourceLake, spark: SparkOnDemand, engine: str) -> LakeReader:
        """Return the reader under `compaction.engine`."""
        if spark.everywhere:
            return cls(lake, spark, "Spark's tasks run on a cluster")
        return cls(lake, spark, "compaction.engine is spark" if engine == "spark" else None)

    def open(self, table: TableName, cut_table: CutTable, buckets_max: int) -> LakeSide:
        """Open current at the cut's version by its log; raises LakeError if that can't be read."""
        arrow, rows, by_spark = None, None, self.by_spark
        try:
            delta = DeltaRows.open(self.lake.url(self.lake.paths.current(table)), cut_table.current_version)
            arrow, rows = ArrowSide(delta, in_lake(cut_table.version), cut_table.row_bytes), delta.rows
        except NotInArrowError as error:
            by_spark = by_spark or error.reason
        return LakeSide(self, table, cut_table, number_of_buckets(rows, buckets_max), by_spark, arrow, rows)


@dataclass(slots=True)
class LakeSide:
    """A table's current at a cut. `number`: of its buckets; `by_spark`: why Spark reads it, None if this process does."""

    reader: LakeReader
    table: TableName
    cut_table: CutTable
    number: int
    by_spark: str | None
    arrow: ArrowSide | None = None
    rows_in_log: int | None = None
    _rows: DataFrame | None = None

    @property
    def session(self) -> SparkSession | None:
        """The session that reads the table, which starts now if it needs one; None if this process reads it."""
        return None if self.by_spark is None else self.reader.spark.get()

    def buckets(self) -> Buckets:
        """Return the buckets that have rows.

        Raises TooLargeError if Spark is to read it, as it does at the next call, UnreadableRowsError, and Spark's errors.
        """
        if self.by_spark is None and self.arrow is not None:
            try:
                return self.arrow.buckets(self.number)
            except TooLargeError:
                self.by_spark = TOO_LARGE
                raise
        from lakeproof.proof.lake.form import lake_buckets

        return lake_buckets(self._frame(), in_lake(self.cut_table.version), self.number)

    def rows(self, chosen: Sequence[int]) -> Iterator[tuple[int, ProofRow]]:
        """Yield each row of the chosen buckets with its bucket, in their order: its hash, and its key's exact texts."""
        if self.by_spark is None and self.arrow is not None:
            return self.arrow.rows(self.number, chosen)
        from lakeproof.proof.lake.form import lake_rows

        return lake_rows(self._frame(), in_lake(self.cut_table.version), self.number, chosen)

    def _frame(self) -> DataFrame:
        if self._rows is None:
            from lakeproof.lake.delta.versions import read_layer
            from lakeproof.lake.rows.memory import fit_table

            session = self.reader.spark.get().newSession()
            fit_table(session, self.cut_table.row_bytes, self.cut_table.version)
            self._rows = read_layer(session, self.reader.lake, self.table, self.cut_table)
        return self._rows
