"""A table's history as a proof reads it by Spark: the sum of its rows, and the buckets of what they add up to.

Both go over history several times. If its rows are few, the first time keeps them: each further one would cost Spark a job
that filters the table's files and a job that reads its deletion vectors, which is most of what small tables cost.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from lakeproof.lake.columns import in_lake
from lakeproof.lake.cycle.upkeep.maintenance_by_spark import rows_of_state
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.fold.unchanged_values import completing
from lakeproof.lake.records.documents import CutTable, HistorySum
from lakeproof.lake.rows.history_sum import sum_of
from lakeproof.lake.rows.memory import fit_table, persist
from lakeproof.names import TableName
from lakeproof.proof.compare import Buckets
from lakeproof.proof.lake.form import lake_buckets
from lakeproof.storage.source_lake import SourceLake

# A history of more rows, or of more bytes if every row were the largest, is read again each time.
KEPT_ROWS_MAX = 500_000
KEPT_BYTES_MAX = 256 << 20


class SparkHistory:
    """A table's history while it is proved, in a session of its own; with `keeps` its rows, if few, are read once."""

    def __init__(
        self, spark: SparkSession, lake: SourceLake, table: TableName, cut_table: CutTable, *, keeps: bool
    ) -> None:
        self._session = spark.newSession()
        self._lake, self._table, self._cut_table = lake, table, cut_table
        self._keeps = keeps and _is_small(cut_table)
        self._schema = in_lake(cut_table.version)
        self._rows: DataFrame | None = None
        fit_table(self._session, cut_table.row_bytes, cut_table.version)

    def __enter__(self) -> SparkHistory:
        return self

    def __exit__(self, *_: object) -> None:
        if self._keeps and self._rows is not None:
            self._rows.unpersist()

    def sum(self) -> HistorySum:
        """Return the sum of the rows in the files."""
        return sum_of(self._schema, self._read())

    def state(self, buckets: int) -> Buckets:
        """Return the buckets of the rows that history adds up to."""
        rows = self._read()
        return lake_buckets(rows_of_state(self._schema, rows, completing(self._cut_table, rows)), self._schema, buckets)

    def _read(self) -> DataFrame:
        if self._rows is None:
            rows = read_layer(self._session, self._lake, self._table, self._cut_table, "history")
            self._rows = persist(rows) if self._keeps else rows
        return self._rows


def _is_small(cut_table: CutTable) -> bool:
    rows = cut_table.history_sum.rows
    return rows <= KEPT_ROWS_MAX and rows * cut_table.row_bytes <= KEPT_BYTES_MAX
