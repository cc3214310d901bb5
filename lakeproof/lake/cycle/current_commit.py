"""Current's commit in a cycle, and the checks that come before history's commit.

Computing the change belongs to `table`, making a commit to `delta.apply`, history's commit to `history_commit`.

The check that the lake has the rows that the changes presuppose (`rows.correction.check_rows`) is made before history gets
its commit. If the publication leaves out an operation, the source's rows change unseen: then nothing is presupposed.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from lakeproof.lake.columns import current_statistics, in_lake
from lakeproof.lake.cycle.task import CycleContext, TableTask
from lakeproof.lake.delta.apply import NO_HINTS, CommitRequest, Hints, Prepared, prepare
from lakeproof.lake.delta.log import NO_VERSION
from lakeproof.lake.fold.net_change import ResolvedChanges
from lakeproof.lake.rows.change import NetChange
from lakeproof.lake.rows.correction import check_rows
from lakeproof.lake.rows.keys_in_memory import DriftedError, check_counts
from lakeproof.landing.catalog_history import sends_everything


def prepare_current(
    session: SparkSession, context: CycleContext, task: TableTask, change: NetChange, hints: Hints = NO_HINTS
) -> Prepared:
    """Find the rows to delete; nothing is committed yet.

    Raises DriftedError if the table does not have the rows that the changes presuppose.
    """
    lake = context.lease.lake
    request = CommitRequest(
        lake.url(lake.paths.current(task.table)),
        change,
        context.commit_info("current", task.table),
        hints,
        create=context.table_spec(task.table, current_statistics(in_lake(task.version))),
        expected_version=NO_VERSION if task.before is None else task.before.current_version,
    )
    try:
        return prepare(session, request)
    except DriftedError:
        if sends_everything(context.chain, task.version.oid):
            raise
        return prepare(session, replace(request, change=replace(change, preconditions=None)))


def check_snapshot(context: CycleContext, task: TableTask, snapshot: DataFrame, since: ResolvedChanges | None) -> None:
    """Raise DriftedError if a snapshot's rows are not those that the changes after it presuppose: one job."""
    if since is None or since.net.preconditions is None:
        return
    net, thing, expected = since.net, str(task.table), since.net.preconditions
    try:
        if net.truncate or net.deletes is None:
            check_counts(thing, expected)
        else:
            check_rows(thing, snapshot, net.deletes, net.key, expected, null_safe=net.null_safe)
    except DriftedError:
        if sends_everything(context.chain, task.version.oid):
            raise
