"""The proof of one table's history: its files have the rows that were written, and they add up to current.

What a sum is belongs to `lakeproof.lake.rows.history_sum`, which tables have their turn to `record`, the source to no
part of it.

    damaged   the rows in the files are not those that cycles wrote: one is altered, doubled or lost, or can't be read
    differs   they are, but current is not what they add up to; then current is wrong, or this comparison

The first is known by the sum in the cut. The second takes the rows of the state out of history and compares them with
current in the buckets of a proof; for a table whose shape has changed it is left out: older rows have their own shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
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
from lakeproof.lake.spark.failures import raise_unless_about_the_data, reason_of
from lakeproof.names import TableName
from lakeproof.proof.compare import differing
from lakeproof.proof.lake_form import lake_buckets
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths

HistoryStatus: TypeAlias = Literal["equal", "damaged", "differs"]


@dataclass(frozen=True, slots=True)
class HistoryProof:
    """What is said of one table's history at a cut; `rows` is how many it has, by the cut."""

    status: HistoryStatus
    rows: int
    reason: str | None = None


def check_history(spark: SparkSession, paths: LakePaths, table: TableName, at: CutTable) -> HistoryProof:
    """Whether the files of history have the rows that were written; reads them once.

    A full disk, or a driver that is gone, is raised: it says nothing of the files.
    """
    session = spark.newSession()
    fit(session, at.row_bytes)
    try:
        found = sum_of(in_lake(at.version), read_layer(session, paths, table, at, "history"))
    except (PySparkException, Py4JJavaError, LogGapError) as error:
        raise_unless_about_the_data(spark, error)
        reason = f"its files can't be read ({reason_of(error)})"
        return HistoryProof("damaged", at.history_sum.rows, _remedied(paths, table, reason))
    if found != at.history_sum:
        return HistoryProof("damaged", at.history_sum.rows, _remedied(paths, table, _damage(found, at.history_sum)))
    return HistoryProof("equal", found.rows)


def prove_history(spark: SparkSession, paths: LakePaths, table: TableName, at: CutTable, buckets: int) -> HistoryProof:
    """The same, and whether current is what history adds up to; reads history twice and current once."""
    proof = check_history(spark, paths, table, at)
    if proof.status != "equal" or len(open_store(paths.lake).list(paths.shapes(table))) > 1:
        return proof
    shape, session = in_lake(at.version), spark.newSession()
    fit(session, at.row_bytes)
    history = read_layer(session, paths, table, at, "history")
    state = rows_of_state(shape, history, completing(at, history))
    try:
        current = lake_buckets(read_layer(session, paths, table, at), shape, buckets)
    except (PySparkException, Py4JJavaError, LogGapError) as error:
        raise_unless_about_the_data(spark, error)
        reason = f"its rows are whole, but current can't be read ({reason_of(error)})"
        return HistoryProof("differs", proof.rows, f"{reason}; {_look(paths)}")
    wrong = differing(lake_buckets(state, shape, buckets), current)
    if not wrong:
        return proof
    reason = f"its rows are whole, but current is not what they add up to: {len(wrong)} of {buckets} buckets differ"
    return HistoryProof("differs", proof.rows, f"{reason}; {_look(paths)}")


def _look(paths: LakePaths) -> str:
    return (
        f"run `lakeproof prove {paths.source}`, which says whether current is wrong; {manual('The proof', 'History')}"
    )


def _damage(found: HistorySum, written: HistorySum) -> str:
    if found.rows != written.rows:
        return f"its files have {found.rows} rows, {written.rows} were written"
    return f"its {found.rows} rows are as many as were written, but not the same"


def _remedied(paths: LakePaths, table: TableName, reason: str) -> str:
    place = paths.url(paths.history(table))
    return f"{reason}; restore {place} from a backup, or begin its history again ({manual('The proof', 'History')})"
