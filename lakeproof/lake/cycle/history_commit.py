"""History's commit in a cycle: the rows are appended, and summed on their way.

Which rows they are belongs to `table_cycle`, how a commit is made once to `apply`, what a sum is to `history_sum`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from lakeproof.failpoints import failpoint
from lakeproof.lake.columns import history_statistics, in_lake
from lakeproof.lake.delta.apply import TableSpec, apply
from lakeproof.lake.delta.log import NO_VERSION
from lakeproof.lake.fold.history import few_files
from lakeproof.lake.fold.replay import in_cycles
from lakeproof.lake.records.history_sum import HistorySum
from lakeproof.lake.rows.history_sum import Summing, sum_of

if TYPE_CHECKING:
    from lakeproof.lake.cycle.task import CycleContext, Work


def append_history(
    session: SparkSession, context: CycleContext, work: Work, events: DataFrame, count: int, *, wipe: bool = False
) -> tuple[int, HistorySum]:
    """History's version after the commit, and the sum of all its rows; `wipe`: what was there goes."""
    paths, shape = context.lease.paths, in_lake(work.version)
    context.lease.check()
    summing = Summing(shape, events)
    written = apply(
        session,
        paths.url(paths.history(work.table)),
        (),
        None,
        few_files(summing.rows, count),
        context.commit_info("history", work.table),
        wipe=wipe,
        create=TableSpec(statistics=history_statistics(shape)),
        expected_version=NO_VERSION if work.before is None else work.before.history_version,
        make=context.make,
    )
    failpoint("cycle.after_history")
    before = HistorySum() if wipe or work.before is None else work.before.history_sum
    added = summing.sum()
    if added is None:
        number = context.intent.number
        rows = session.read.format("delta").option("versionAsOf", written.version)
        own = rows.load(paths.url(paths.history(work.table))).where(in_cycles(number, number))
        added = sum_of(shape, own)
    return written.version, before.plus(added)
