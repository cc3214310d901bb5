"""Compaction: cycle after cycle, until the lake has all that has landed.

One cycle does not belong here but in `lakeproof.lake.cycle`; the callers decide when compaction runs.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from lakeproof.commands.sql_catalog import name_cut
from lakeproof.config.model import Config
from lakeproof.events import Event, Report, Stop
from lakeproof.lake.cycle.runner import CutReport, Runner
from lakeproof.lake.delta.self_test import known_reason
from lakeproof.lake.planning.next_incarnation import to_be_followed
from lakeproof.lake.records.lease import Lease, hold_lease
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark.cluster import is_local
from lakeproof.lake.spark.executors import at_work
from lakeproof.lake.spark.failures import without_java
from lakeproof.landing.chain import Chain, newest_incarnation
from lakeproof.landing.missing import no_landing
from lakeproof.lsn import Lsn
from lakeproof.snapshot.keyed_copy import PlacedCopy
from lakeproof.storage.source_lake import SourceLake


@without_java(lambda _config, name, *_, **__: name)
def compact(  # noqa: PLR0917  the same order in every step of the pipeline
    config: Config, name: str, spark: SparkSession, report: Report, stop: Stop, end: Lsn | None = None
) -> list[CutReport]:
    """Run cycles until the chain's end (or `end`, exactly there) is in the lake; an interrupted cycle is finished first.

    The landing of an earlier incarnation goes first, then the lake switches to the next
    (`lakeproof.lake.planning.next_incarnation`). Returns the cycles that ended here, oldest first. Takes the source's lease.
    Raises LakeError if there is no landing, TransientError if another process holds the lease.
    """
    lake = SourceLake.open(config.location, name)
    if newest_incarnation(lake) is None:
        raise no_landing(lake)
    with at_work(spark, config.location), hold_lease(lake, spark, stop) as lease:
        return compact_under(lease, config, spark, report, stop, end=end)


def compact_under(
    lease: Lease,
    config: Config,
    spark: SparkSession,
    report: Report,
    stop: Stop,
    *,
    end: Lsn | None = None,
    keyed: PlacedCopy | None = None,
) -> list[CutReport]:
    """Do the same for the source of a lease that the caller holds; the cycle that ends at `end` enters `keyed`."""
    name, lake = lease.lake.source, lease.lake
    source, newest = config.source(name), newest_incarnation(lake)
    if newest is None:
        raise no_landing(lake)
    runner = Runner(spark, lease, source, report, stop, end, keyed)
    done = runner.finish_interrupted()
    for incarnation in to_be_followed(lake, newest_cut(lake)):
        done += runner.follow(Chain.open(lake, incarnation), end if incarnation == newest else None)
    name_cut(config, name, spark, report)
    if done and not is_local(spark.sparkContext.master):
        report(_on_a_cluster(spark, source.compaction.apply))
    why = known_reason(spark) if done and source.compaction.apply == "auto" else None
    if why is not None:
        message = f"changes are merged, which is slower than deletion vectors: {why}"
        report(Event("compact.apply", message, {"why": why}))
    return done


def _on_a_cluster(spark: SparkSession, apply: str) -> Event:
    """Return the event that says where the cycles' tasks ran, and how changes were committed."""
    context = spark.sparkContext
    strategy = "deletion vectors" if apply == "auto" and known_reason(spark) is None else "MERGE"
    message = f"written by the cluster {context.master}, changes with {strategy}"
    fields = {"master": context.master, "cores": context.defaultParallelism, "strategy": strategy}
    return Event("compact.cluster", message, fields)
