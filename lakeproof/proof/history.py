"""The proof of one table's history: its files have the rows that were written, and they add up to current.

Computing a sum belongs to `lakeproof.lake.rows.history_sum`, choosing tables to `record`; the source has no part in it.

    damaged   the rows in the files are not those that cycles wrote: one is altered, doubled or lost, or can't be read
    differs   the rows are right, but current is not what they add up to: then current is wrong, or this comparison

The sum in the cut shows the first. For the second, the rows of the state are taken from history and compared with current
in the buckets of a proof; it is left out for a table whose schema has changed, since older rows have another schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pyspark.sql import SparkSession

from lakeproof.errors import manual
from lakeproof.lake.columns import in_lake
from lakeproof.lake.cycle.maintenance import rows_of_state
from lakeproof.lake.delta.log import LogGapError
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.fold.unchanged_values import completing
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.records.history_sum import HistorySum
from lakeproof.lake.rows.history_sum import sum_of
from lakeproof.lake.rows.memory import fit
from lakeproof.lake.spark.failures import reading, reason_of
from lakeproof.names import TableName
from lakeproof.proof.compare import differing
from lakeproof.proof.lake_form import lake_buckets
from lakeproof.storage.source_lake import SourceLake

HistoryStatus: TypeAlias = Literal["equal", "damaged", "differs"]


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
    session = spark.newSession()
    fit(session, cut_table.row_bytes)
    with reading(spark, LogGapError) as attempt:
        stored = sum_of(in_lake(cut_table.version), read_layer(session, lake, table, cut_table, "history"))
    if attempt.error is not None:
        reason = f"its files can't be read ({reason_of(attempt.error)})"
    elif stored != cut_table.history_sum:
        reason = _damage(stored, cut_table.history_sum)
    else:
        return HistoryProof("equal", stored.rows)
    return HistoryProof("damaged", cut_table.history_sum.rows, _remedied(lake, table, reason))


def prove_history(
    spark: SparkSession, lake: SourceLake, table: TableName, cut_table: CutTable, buckets: int
) -> HistoryProof:
    """Do the same, and check that current is what history adds up to; reads history twice and current once."""
    proof = check_history(spark, lake, table, cut_table)
    if proof.status != "equal" or len(lake.store.list(lake.paths.schema_versions(table))) > 1:
        return proof
    schema, session = in_lake(cut_table.version), spark.newSession()
    fit(session, cut_table.row_bytes)
    history = read_layer(session, lake, table, cut_table, "history")
    state = rows_of_state(schema, history, completing(cut_table, history))
    with reading(spark, LogGapError) as attempt:
        current = lake_buckets(read_layer(session, lake, table, cut_table), schema, buckets)
    if attempt.error is not None:
        reason = f"its rows are whole, but current can't be read ({reason_of(attempt.error)})"
        return HistoryProof("differs", proof.rows, f"{reason}; {_look(lake)}")
    wrong = differing(lake_buckets(state, schema, buckets), current)
    if not wrong:
        return proof
    reason = f"its rows are whole, but current is not what they add up to: {len(wrong)} of {buckets} buckets differ"
    return HistoryProof("differs", proof.rows, f"{reason}; {_look(lake)}")


def _look(lake: SourceLake) -> str:
    return f"run `lakeproof prove {lake.source}`, which says whether current is wrong; {manual('The proof', 'History')}"


def _damage(stored: HistorySum, written: HistorySum) -> str:
    if stored.rows != written.rows:
        return f"its files have {stored.rows} rows, {written.rows} were written"
    return f"its {stored.rows} rows are as many as were written, but not the same"


def _remedied(lake: SourceLake, table: TableName, reason: str) -> str:
    place = lake.url(lake.paths.history(table))
    return f"{reason}; restore {place} from a backup, or begin its history again ({manual('The proof', 'History')})"
