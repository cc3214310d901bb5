"""Brings one source's lake up to its landing: cycle after cycle, through one incarnation into the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeproof.config.model import Config
from lakeproof.events import Event, RunControl
from lakeproof.lake.cycle.runner import CutReport, Runner
from lakeproof.lake.planning.next_incarnation import to_be_followed
from lakeproof.lake.records.lease import Lease
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark_on_demand import AnySpark, SparkOnDemand
from lakeproof.landing.chain import Chain, newest_incarnation
from lakeproof.landing.missing import no_landing
from lakeproof.lsn import Lsn
from lakeproof.snapshot.copy.keyed_copy import PlacedCopy
from lakeproof.sql_catalog import name_cut

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact_under(
    lease: Lease,
    config: Config,
    spark: AnySpark,
    control: RunControl,
    *,
    end: Lsn | None = None,
    keyed: PlacedCopy | None = None,
) -> list[CutReport]:
    """Run cycles until the chain's end (or `end`, exactly there) is in the lake; an interrupted cycle is finished first.

    The landing of an earlier incarnation goes first, then the lake switches to the next. The caller holds the
    source's lease; the cycle that ends at `end` enters `keyed`. Returns the cycles that ended here, oldest first.
    """
    name, lake = lease.lake.source, lease.lake
    source, newest = config.source(name), newest_incarnation(lake)
    if newest is None:
        raise no_landing(lake)
    on_demand = SparkOnDemand.of(spark)
    runner = Runner(on_demand, lease, source, control.report, control.stop, end, keyed)
    done = runner.finish_interrupted()
    for incarnation in to_be_followed(lake, newest_cut(lake)):
        done += runner.follow(Chain.open(lake, incarnation), end if incarnation == newest else None)
    if config.catalog is not None:
        name_cut(config, name, on_demand, control.report)
    if done and on_demand.everywhere:
        control.report(_on_a_cluster(on_demand.get()))
    return done


def _on_a_cluster(spark: SparkSession) -> Event:
    """Return the event that says where the cycles' tasks ran."""
    context = spark.sparkContext
    fields = {"master": context.master, "cores": context.defaultParallelism}
    return Event("compact.cluster", f"written by the cluster {context.master}", fields)
