"""The proof of one table's history: its files have the rows that were written, and they add up to current.

Computing a sum belongs to `lakeproof.lake.rows.history_sum`, choosing tables to `record`; the source has no part in it.

    damaged   the rows in the files are not those that cycles wrote: one is altered, doubled or lost, or can't be read
    differs   the rows are right, but current is not what they add up to: then current is wrong, or this comparison

The sum in the cut shows the first. For the second, the rows of the state are taken from history and compared with current
in the buckets of a proof; it is left out for a table whose schema has changed, since older rows have another schema.

Both go over history several times. If its rows are few, the first time keeps them: each further one would cost Spark a job
that filters the table's files and a job that reads its deletion vectors, which is most of what small tables cost.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from lakeproof.errors import manual
from lakeproof.lake.columns import in_lake
from lakeproof.lake.cycle.maintenance import rows_of_state
from lakeproof.lake.delta.log import LogGapError
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.fold.unchanged_values import completing
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.records.history_sum import HistorySum
from lakeproof.lake.rows.history_sum import sum_of
from lakeproof.lake.rows.memory import fit_table, keep
from lakeproof.lake.spark.failures import reading, reason_of
from lakeproof.names import TableName
from lakeproof.proof.compare import Buckets, differing
from lakeproof.proof.lake_form import lake_buckets
from lakeproof.storage.source_lake import SourceLake

HistoryStatus: TypeAlias = Literal["equal", "damaged", "differs"]
# A history of more rows, or of more bytes if every row were the largest, is read again each time.
KEPT_ROWS_MAX = 500_000
KEPT_BYTES_MAX = 256 << 20


@dataclass(frozen=True, slots=True)
class HistoryProof:
    """The result for one table's history at a cut; `rows`: the number of its rows, by the cut."""

    status: HistoryStatus
    rows: int
    reason: str | None = None


def check_history(spark: SparkSession, lake: SourceLake, table: TableName, cut_table: CutTable) -> HistoryProof:
    """Check that the files of history have the rows that were written; reads them once.

    A full disk, or a lost driver, is raised: it is not about the files.
    """
    with _ReadHistory(spark, lake, table, cut_table, keeps=False) as history:
        return history.check()


def prove_history(  # noqa: PLR0917  whose history, and what is known of current
    spark: SparkSession,
    lake: SourceLake,
    table: TableName,
    cut_table: CutTable,
    buckets: int,
    current: Buckets | None = None,
) -> HistoryProof:
    """Do the same, and check that current is what history adds up to.

    `current` are the buckets of current at the cut's version; None: it is read for them, once.
    """
    replays = len(lake.store.list(lake.paths.schema_versions(table))) <= 1
    with _ReadHistory(spark, lake, table, cut_table, keeps=replays and _is_small(cut_table)) as history:
        proof = history.check()
        return history.replay(proof, buckets, current) if replays and proof.status == "equal" else proof


def _is_small(cut_table: CutTable) -> bool:
    rows = cut_table.history_sum.rows
    return rows <= KEPT_ROWS_MAX and rows * cut_table.row_bytes <= KEPT_BYTES_MAX


class _ReadHistory:
    """A table's history while it is proved, in a session of its own; with `keeps` its rows are read from files once."""

    def __init__(
        self, spark: SparkSession, lake: SourceLake, table: TableName, cut_table: CutTable, *, keeps: bool
    ) -> None:
        self._spark, self._session = spark, spark.newSession()
        self._lake, self._table, self._cut_table = lake, table, cut_table
        self._keeps = keeps
        self._kept = ExitStack()
        self._schema = in_lake(cut_table.version)
        fit_table(self._session, cut_table.row_bytes, cut_table.version)

    def __enter__(self) -> _ReadHistory:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    def check(self) -> HistoryProof:
        """Compare the sum of the rows in the files with the cut's."""
        written = self._cut_table.history_sum
        with reading(self._spark, LogGapError) as attempt:
            self._rows = self._read()
            stored = sum_of(self._schema, self._rows)
        if attempt.error is not None:
            reason = f"its files can't be read ({reason_of(attempt.error)})"
        elif stored != written:
            reason = _damage(stored, written)
        else:
            return HistoryProof("equal", stored.rows)
        return HistoryProof("damaged", written.rows, _remedied(self._lake, self._table, reason))

    def replay(self, proof: HistoryProof, buckets: int, current: Buckets | None) -> HistoryProof:
        """Compare what the checked rows add up to with current."""
        state = rows_of_state(self._schema, self._rows, completing(self._cut_table, self._rows))
        with reading(self._spark, LogGapError) as attempt:
            if current is None:
                layer = read_layer(self._session, self._lake, self._table, self._cut_table)
                current = lake_buckets(layer, self._schema, buckets)
        if attempt.error is not None:
            reason = f"its rows are whole, but current can't be read ({reason_of(attempt.error)})"
            return HistoryProof("differs", proof.rows, f"{reason}; {_look(self._lake)}")
        wrong = differing(lake_buckets(state, self._schema, buckets), current or {})
        if not wrong:
            return proof
        reason = f"its rows are whole, but current is not what they add up to: {len(wrong)} of {buckets} buckets differ"
        return HistoryProof("differs", proof.rows, f"{reason}; {_look(self._lake)}")

    def _read(self) -> DataFrame:
        rows = read_layer(self._session, self._lake, self._table, self._cut_table, "history")
        if self._keeps:
            rows = keep(rows)
            self._kept.callback(rows.unpersist)
        return rows


def _look(lake: SourceLake) -> str:
    return f"run `lakeproof prove {lake.source}`, which says whether current is wrong; {manual('The proof', 'History')}"


def _damage(stored: HistorySum, written: HistorySum) -> str:
    if stored.rows != written.rows:
        return f"its files have {stored.rows} rows, {written.rows} were written"
    return f"its {stored.rows} rows are as many as were written, but not the same"


def _remedied(lake: SourceLake, table: TableName, reason: str) -> str:
    place = lake.url(lake.paths.history(table))
    return f"{reason}; restore {place} from a backup, or begin its history again ({manual('The proof', 'History')})"
