"""History's commit in a cycle: Spark appends rows, which are summed while they are written.

Computing the rows belongs to `table`, making a commit once to `delta.apply`, the definition of a sum to `rows.history_sum`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from lakeproof.failpoints import failpoint
from lakeproof.lake.columns import history_statistics, in_lake
from lakeproof.lake.delta.apply import CommitRequest, apply
from lakeproof.lake.delta.log import NO_VERSION
from lakeproof.lake.fold.history import few_files
from lakeproof.lake.fold.replay import behind
from lakeproof.lake.records.history_sum import HistorySum
from lakeproof.lake.rows.change import NetChange
from lakeproof.lake.rows.history_sum import Summing, sum_of

if TYPE_CHECKING:
    from lakeproof.lake.cycle.task import CycleContext, TableTask


@dataclass(frozen=True, slots=True)
class HistoryRows:
    """About `count` rows to append to history; `truncate`: delete all earlier rows of history first."""

    frame: DataFrame
    count: int
    truncate: bool = False


def append_history(
    session: SparkSession, context: CycleContext, task: TableTask, rows: HistoryRows
) -> tuple[int, HistorySum]:
    """Return history's version after the commit, and the sum of all its rows."""
    lake, schema = context.lease.lake, in_lake(task.version)
    context.lease.check()
    summing = Summing(schema, rows.frame)
    request = CommitRequest(
        lake.url(lake.paths.history(task.table)),
        NetChange(images=few_files(summing.rows, rows.count), truncate=rows.truncate),
        context.commit_info("history", task.table),
        create=context.table_spec(task.table, history_statistics(schema)),
        expected_version=NO_VERSION if task.before is None else task.before.history_version,
    )
    applied = apply(session, request)
    failpoint("cycle.after_history")
    before = HistorySum() if rows.truncate or task.before is None else task.before.history_sum
    added = summing.sum()
    if added is None:
        stored = session.read.format("delta").option("versionAsOf", applied.version).load(request.path)
        added = sum_of(schema, stored.where(behind(None if rows.truncate else task.before)))
    return applied.version, before.plus(added)
