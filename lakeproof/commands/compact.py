"""Compaction of a source, of a group, or of either again and again: until the lake has all that has landed.

Cycle after cycle is in `lakeproof.compaction`, the follower in `lakeproof.follow`; the callers decide when it runs.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from lakeproof.compaction.group import GroupReport, compact_group_under, in_order
from lakeproof.compaction.source import compact_under
from lakeproof.config.model import Config
from lakeproof.events import Report, RunControl, Stop
from lakeproof.follow.follower import Follower, FollowOptions, FollowReport
from lakeproof.follow.proofs import ContinuousProofs
from lakeproof.lake.cycle.runner import CutReport
from lakeproof.lake.records.lease import followed, hold_lease
from lakeproof.lake.spark.driver import at_work
from lakeproof.lake.spark.failures import without_java
from lakeproof.lake.spark_on_demand import AnySpark, SparkOnDemand
from lakeproof.landing.chain import newest_incarnation
from lakeproof.landing.missing import no_landing
from lakeproof.lsn import Lsn
from lakeproof.metrics.observed import ObservedFollow, observed_follow
from lakeproof.storage.source_lake import SourceLake


@without_java(lambda _config, name, *_, **__: name)
def compact(  # noqa: PLR0917  the same order in every step of the pipeline
    config: Config, name: str, spark: AnySpark, report: Report, stop: Stop, end: Lsn | None = None
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
        return compact_under(lease, config, spark, RunControl(report, stop), end=end)


@without_java(lambda _config, group, *_, **__: f"group {group}")
def compact_group(config: Config, group: str, spark: AnySpark, report: Report, stop: Stop) -> GroupReport:
    """Bring all sources of a group to the least end of their landings, then put its cut.

    Takes the leases of all of them. Raises LakeError if a source has no landing, or if they are not of one history of one
    database; TransientError if another process holds a lease, or if a source can't be brought to that position yet.
    """
    names = config.group(group)
    lakes = [SourceLake.open(config.location, name) for name in names]
    for lake in lakes:
        if newest_incarnation(lake) is None:
            raise no_landing(lake)
    with at_work(spark, config.location), ExitStack() as stack:
        # In one order for everybody; who waits for a lease has none of the group's later ones.
        leases = [stack.enter_context(hold_lease(lake, spark, stop)) for lake in in_order(lakes)]
        return compact_group_under(leases, config, group, spark, RunControl(report, stop))


@without_java(lambda _config, name, *_, **__: name)
def follow(
    config: Config, name: str, spark: AnySpark, control: RunControl, options: FollowOptions | None = None
) -> FollowReport:
    """Compact the source or group `name` until `control.stop` is requested or `options.max_seconds` are over.

    Raises LakeError if there is no landing or it is damaged, DriverLostError, ConfigError for an unknown name; and
    TransientError if other processes write to the lake for longer than a turn.
    """
    options, on_demand = options or FollowOptions(), SparkOnDemand.of(spark)
    sources = config.groups.get(name) or (config.source(name).name,)
    lakes = in_order(SourceLake.open(config.location, source) for source in sources)
    for lake in lakes:
        if newest_incarnation(lake) is None:
            raise no_landing(lake)
    whole = ObservedFollow(control.report, options.on_cuts, options.on_views)
    with observed_follow(config, name, [lake.source for lake in lakes], whole) as observed:
        control = replace(control, report=observed.report)
        options = replace(options, on_cuts=observed.on_cuts, on_views=observed.on_views)
        proofs = ContinuousProofs(config, [lake.source for lake in lakes], on_demand, control)
        follower = Follower(config, name, on_demand, control, options, lakes, proofs)
        with at_work(on_demand, config.location), ExitStack() as shown, follower.views_refreshed(), proofs:
            for lake in lakes:
                shown.enter_context(followed(lake))
            follower.run()
        return follower.done
