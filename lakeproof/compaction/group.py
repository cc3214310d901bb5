"""Compaction of a group: all of its sources up to one position, then a cut of the group that names their cuts.

All leases are kept from the first cycle to the group's cut: nobody moves a source, or removes one of its cuts, in between. A
process that is killed leaves cuts of sources, which the next run's group cut names, or those of a later position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lakeproof.compaction.source import compact_under
from lakeproof.config.model import Config
from lakeproof.errors import LakeError
from lakeproof.events import Event, RunControl
from lakeproof.failpoints import failpoint
from lakeproof.lake.cycle.runner import CutReport, finish_interrupted
from lakeproof.lake.planning.group_position import GroupPosition, group_position
from lakeproof.lake.records.cuts.groups import GroupCut, GroupMember, newest_group_cut, put_group_cut
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.lease import Lease
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark_on_demand import AnySpark, SparkOnDemand
from lakeproof.storage.open import open_store
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import now_text, time_of


@dataclass(frozen=True, slots=True)
class GroupReport:
    """The cycles that ended for each source, oldest first, and the group's new cut; None if there is no newer one."""

    group: str
    cuts: Mapping[str, list[CutReport]] = field(default_factory=dict)
    cut: GroupCut | None = None


def in_order(lakes: Iterable[SourceLake]) -> list[SourceLake]:
    """Return the lakes in the order in which everybody takes their leases, so that no two processes wait for each other."""
    return sorted(lakes, key=lambda lake: lake.source)


def compact_group_under(
    leases: Sequence[Lease],
    config: Config,
    group: str,
    spark: AnySpark,
    control: RunControl,
) -> GroupReport:
    """Bring all sources of a group to one position and put its cut; the caller holds the leases, one of each source."""
    report, stop = control.report, control.stop
    on_demand = SparkOnDemand.of(spark)
    done = {
        lease.lake.source: finish_interrupted(on_demand, lease, config.source(lease.lake.source), report)
        for lease in leases
    }
    place = group_position(group, [lease.lake for lease in leases])
    for lease in leases:
        source = lease.lake.source
        done[source] += compact_under(lease, config, on_demand, control, end=place.position)
        failpoint("group.after_source")
    if stop.requested:
        return GroupReport(group, done)
    cut = _end(config, group, leases, place)
    if cut is not None:
        report(_event(cut))
    return GroupReport(group, done, cut)


def _end(config: Config, group: str, leases: Sequence[Lease], place: GroupPosition) -> GroupCut | None:
    """Put the group's cut; None if its newest one names the same cuts."""
    store = open_store(config.location)
    cuts = {lease.lake.source: _cut_at(group, lease.lake, place) for lease in leases}
    members = {
        source: GroupMember(cut.number, cut.incarnation, {table: held.at_lsn for table, held in cut.held.items()})
        for source, cut in sorted(cuts.items())
    }
    newest = newest_group_cut(store, group)
    if newest is not None and newest.sources == members:
        return None
    times = [cut.commit_time for cut in cuts.values() if cut.commit_time is not None]
    cut = GroupCut(
        number=1 if newest is None else newest.number + 1,
        group=group,
        position=place.position,
        commit_time=max(times, key=time_of, default=None),
        system_id=place.system_id,
        timeline=place.timeline,
        database_oid=place.database_oid,
        sources=members,
        created_at=now_text(),
    )
    for lease in leases:
        lease.check()
    failpoint("group.before_cut")
    put_group_cut(store, cut)
    return cut


def _cut_at(group: str, lake: SourceLake, place: GroupPosition) -> Cut:
    """Return the source's newest cut; raises LakeError if it is not at the group's position."""
    cut = newest_cut(lake)
    if cut is None or (cut.incarnation, cut.position) != (place.incarnations[lake.source], place.position):
        stands = "has no cut" if cut is None else f"stands at {cut.position} of incarnation {cut.incarnation}"
        reason = f"{lake.source} {stands}, not at {place.position} of {place.incarnations[lake.source]}"
        raise LakeError(f"group {group}", reason, "compact again; if that does not help, report this")
    return cut


def _event(cut: GroupCut) -> Event:
    held = [f"{source}: {table}" for source, member in cut.sources.items() for table in member.held]
    return Event(
        "compact.group",
        f"group {cut.group}: cut {cut.number} at {cut.position}",
        {
            "group": cut.group,
            "cut": cut.number,
            "position": str(cut.position),
            "sources": {source: int(member.cut) for source, member in cut.sources.items()},
            "held": held,
        },
    )
