"""The proof of one table's history: its files have the rows that were written, and they add up to current.

Reading history belongs to `history_in_arrow` and `history_by_spark`, choosing tables to `record`; the source has no part in
it.

    damaged   the files lack a row that a cycle wrote, have another one, or have a row altered, twice or unreadable
    differs   the rows are right, but current is not what they add up to: then current is wrong, or this comparison

The sum in the cut shows the first. For the second, the rows of the state are taken from history and compared with current
in the buckets of a proof; it is left out for a table whose schema has changed, since older rows have another schema.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from lakeproof.errors import UnreadableRowsError, manual
from lakeproof.events import counted
from lakeproof.lake.delta.arrow_rows import NotInArrowError
from lakeproof.lake.delta.log.commits import LogGapError
from lakeproof.lake.records.documents import CutTable, HistorySum
from lakeproof.lake.spark.failures import reading, reason_of
from lakeproof.names import TableName
from lakeproof.proof.compare import FilledBuckets, differing_buckets
from lakeproof.proof.lake.history_in_arrow import ArrowHistory
from lakeproof.proof.lake.in_arrow import TooLargeError
from lakeproof.proof.lake.side import TOO_LARGE, LakeReader
from lakeproof.storage.source_lake import SourceLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakeproof.proof.lake.history_by_spark import SparkHistory

HistoryStatus: TypeAlias = Literal["equal", "damaged", "differs"]


@dataclass(frozen=True, slots=True)
class HistoryProof:
    """The result for one table's history at a cut; `rows`: the number of its rows, by the cut.

    `by_spark` says why Spark has read it, None if the proving process has.
    """

    status: HistoryStatus
    rows: int
    reason: str | None = None
    by_spark: str | None = None


# A table's history, which this process or Spark reads.
_History: TypeAlias = "ArrowHistory | SparkHistory"
_Work: TypeAlias = "Callable[[_History, SparkSession | None], HistoryProof]"


def check_history(reader: LakeReader, table: TableName, cut_table: CutTable) -> HistoryProof:
    """Check that the files of history have the rows that were written; reads them once.

    A full disk, or a lost driver, is raised: it is not about the files.
    """
    return _read(
        reader, table, cut_table, lambda history, session: _check(reader.lake, table, cut_table, history, session)
    )


def prove_history(
    reader: LakeReader, table: TableName, cut_table: CutTable, buckets_max: int, current: FilledBuckets | None = None
) -> HistoryProof:
    """Do the same, and check that current is what history adds up to.

    `current` are the sums of current at the cut's version; None: it is read for them, once.
    """
    replays = len(reader.lake.store.list(reader.lake.paths.schema_versions(table))) <= 1

    def work(history: _History, session: SparkSession | None) -> HistoryProof:
        proof = _check(reader.lake, table, cut_table, history, session)
        if not replays or proof.status != "equal":
            return proof
        with reading(session, LogGapError, UnreadableRowsError) as attempt:
            sums = current or _current(reader, table, cut_table, buckets_max)
        if attempt.error is not None:
            reason = f"its rows are whole, but current can't be read ({reason_of(attempt.error)})"
            return HistoryProof("differs", proof.rows, f"{reason}; {_look(reader.lake)}")
        with reading(session, LogGapError, UnreadableRowsError) as attempt:
            wrong = differing_buckets(history.state(sums.number), sums.buckets)
        if attempt.error is not None:
            reason = f"its rows are whole, but can't be added up ({reason_of(attempt.error)})"
        elif not wrong:
            return proof
        else:
            differ = f"{len(wrong)} of {counted(sums.number, 'bucket')} differ"
            reason = f"its rows are whole, but current is not what they add up to: {differ}"
        return HistoryProof("differs", proof.rows, f"{reason}; {_look(reader.lake)}")

    return _read(reader, table, cut_table, work, keeps=replays)


def _read(
    reader: LakeReader, table: TableName, cut_table: CutTable, work: _Work, *, keeps: bool = False
) -> HistoryProof:
    """Do the work with history as this process reads it, or Spark where that is needed."""
    by_spark = reader.by_spark
    if by_spark is None:
        try:
            return work(ArrowHistory(reader.lake, table, cut_table), None)
        except NotInArrowError as error:
            by_spark = error.reason
        except TooLargeError:
            by_spark = TOO_LARGE
    from lakeproof.proof.lake.history_by_spark import SparkHistory

    session = reader.spark.get()
    with SparkHistory(session, reader.lake, table, cut_table, keeps=keeps) as history:
        return replace(work(history, session), by_spark=by_spark)


def _current(reader: LakeReader, table: TableName, cut_table: CutTable, buckets_max: int) -> FilledBuckets:
    side = reader.open(table, cut_table, buckets_max)
    with suppress(TooLargeError):
        return FilledBuckets(side.buckets(), side.number)
    return FilledBuckets(side.buckets(), side.number)


def _check(
    lake: SourceLake, table: TableName, cut_table: CutTable, history: _History, session: SparkSession | None
) -> HistoryProof:
    """Compare the sum of the rows in the files with the cut's."""
    written = cut_table.history_sum
    with reading(session, LogGapError, UnreadableRowsError) as attempt:
        stored = history.sum()
    if attempt.error is not None:
        reason = f"its files can't be read ({reason_of(attempt.error)})"
    elif stored != written:
        reason = _damage(stored, written)
    else:
        return HistoryProof("equal", stored.rows)
    return HistoryProof("damaged", written.rows, _remedied(lake, table, reason))


def _look(lake: SourceLake) -> str:
    return f"run `lakeproof prove {lake.source}`, which says whether current is wrong; {manual('The proof', 'History')}"


def _damage(stored: HistorySum, written: HistorySum) -> str:
    if stored.rows != written.rows:
        return f"its files have {stored.rows} rows, {written.rows} were written"
    return f"its {stored.rows} rows are as many as were written, but not the same"


def _remedied(lake: SourceLake, table: TableName, reason: str) -> str:
    place = lake.url(lake.paths.history(table))
    return f"{reason}; restore {place} from a backup, or begin its history again ({manual('The proof', 'History')})"
