"""Current's commit in a cycle, and what is looked at before history's.

What is committed belongs to `table_cycle`, how to `apply`, history's commit to `history_commit`.

Whether the lake has the rows that the changes presuppose (`presupposed`) is known before history gets its commit. Where the
publication leaves out an operation, the source's rows change unseen: then nothing is presupposed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from lakeproof.failpoints import failpoint
from lakeproof.lake.columns import current_statistics, merge_key
from lakeproof.lake.cycle.task import CycleContext, Work
from lakeproof.lake.delta.apply import Applied, Prepared, TableSpec, prepare
from lakeproof.lake.delta.commit import Change
from lakeproof.lake.delta.log import NO_VERSION
from lakeproof.lake.fold.net_change import Folded, NetChange
from lakeproof.lake.rows.preconditions import DriftedError, check_counts, check_rows
from lakeproof.landing.catalog_history import sends_everything


def prepare_current(
    session: SparkSession,
    context: CycleContext,
    work: Work,
    net: NetChange,
    bounds: tuple[int, int] | None = None,
    *,
    few: bool = False,
    keys_max: int | None = None,
) -> Prepared:
    """Find what goes. Raises DriftedError where that is not what the changes presuppose; nothing is committed by then."""
    paths = context.lease.paths
    # NULL lies within no bounds, and a hidden key's text is not the number that was bounded.
    bounds = bounds if merge_key(net.shape) == net.shape.key and not net.null_safe else None
    key = merge_key(net.shape)
    change = Change(key, net.deletes, net.images, bounds, net.null_safe, few, keys_max, net.presupposed)
    ready = partial(
        prepare,
        session,
        paths.url(paths.current(work.table)),
        commit=context.commit_info("current", work.table),
        wipe=net.wipe,
        create=TableSpec(statistics=current_statistics(net.shape)),
        expected_version=NO_VERSION if work.before is None else work.before.current_version,
        make=context.make,
    )
    try:
        return ready(change)
    except DriftedError:
        if sends_everything(context.chain, work.version.oid):
            raise
        return ready(replace(change, presupposed=None))


def commit_current(context: CycleContext, ready: Prepared) -> Applied:
    """Current's commit."""
    context.lease.check()
    written = ready.commit()
    failpoint("cycle.after_current")
    return written


def check_snapshot(context: CycleContext, work: Work, snapshot: DataFrame, since: Folded | None) -> None:
    """Raise DriftedError where a snapshot's rows are not those that the changes after it presuppose: one job."""
    if since is None or since.net.presupposed is None:
        return
    net, thing = since.net, str(work.table)
    try:
        if net.wipe or net.deletes is None:
            check_counts(thing, net.presupposed or 0)
        else:
            key = merge_key(net.shape)
            check_rows(thing, snapshot, net.deletes, key, net.presupposed or 0, null_safe=net.null_safe)
    except DriftedError:
        if sends_everything(context.chain, work.version.oid):
            raise
