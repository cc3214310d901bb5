"""Finds the position that all sources of a group can be brought to: the least end of their landings.

Compacting does not belong here (`lakeproof.compaction.group`); nothing is written, and no server is asked.

A landing's end is a position up to which its slot's stream is known completely, and all slots of a server decode one log. So
the least of the ends is a position at which the state of each source is known, whatever the others have landed beyond it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakeproof.errors import RECOVER, LakeError, TransientError
from lakeproof.lake.planning.entries import pending_snapshots
from lakeproof.lake.records.store import newest_cut
from lakeproof.landing.chain import Chain
from lakeproof.landing.missing import no_landing
from lakeproof.landing.segments.manifest import ChainSource
from lakeproof.landing.timelines import newest_followed
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import time_of


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """A position of all sources of a group, on a timeline of their one server; `slowest` is the source that sets it."""

    position: Lsn
    system_id: str
    timeline: int
    database_oid: int
    slowest: str
    incarnations: Mapping[str, Incarnation]


@dataclass(frozen=True, slots=True)
class _Member:
    """A source with its newest landing, and what that says of the server."""

    lake: SourceLake
    chain: Chain
    source: ChainSource

    @property
    def name(self) -> str:
        return self.lake.source


def group_position(group: str, lakes: Sequence[SourceLake]) -> GroupPosition:
    """Return the position that a compaction brings the group's sources to: the least end of their landings.

    Raises LakeError if a source has no landing, or if they are not of one history of one database; TransientError if a
    source waits for its copy, or stands beyond what another one has landed.
    """
    members = [_member(lake) for lake in lakes]
    _check_one_database(group, members)
    slowest = min(members, key=lambda member: member.chain.end)
    position = slowest.chain.end
    floors = {member.name: _floor(member) for member in members}
    first = max(floors, key=lambda name: floors[name])
    if position < floors[first]:
        raise TransientError(
            f"group {group}",
            f"{slowest.name} has landed up to {position}, and {first} can't be read before {floors[first]}",
            f"see that the drain of {slowest.name} runs, then compact again",
        )
    timeline = _one_timeline(group, members, position)
    _check_looked_since(group, members)
    source = members[0].source
    incarnations = {member.name: member.chain.incarnation for member in members}
    return GroupPosition(position, source.system_id, timeline, source.database_oid, slowest.name, incarnations)


def _member(lake: SourceLake) -> _Member:
    chain = Chain.open_newest(lake)
    source = None if chain is None else chain.head.source
    if chain is None or source is None:
        raise no_landing(lake)
    return _Member(lake, chain, source)


def _floor(member: _Member) -> Lsn:
    """Return the least position at which the lake can have the source from now on."""
    lake, chain, cut = member.lake, member.chain, newest_cut(member.lake)
    if cut is not None and cut.incarnation == chain.incarnation:
        return cut.position
    pending = pending_snapshots(lake, chain.incarnation, cut)
    if not pending:
        raise TransientError(
            f"{lake.source}: incarnation {chain.incarnation}",
            "it has begun, and the copy that the lake begins it with has not finished",
            f"run `lakeproof bootstrap {lake.source}`, or `lakeproof recover {lake.source}` if that was interrupted",
        )
    return max(chain.head.end_lsn, *(snapshot.consistent_point for snapshot in pending.values()))


def _check_one_database(group: str, members: Sequence[_Member]) -> None:
    databases = {member.name: (member.source.system_id, member.source.database_oid) for member in members}
    if len(set(databases.values())) > 1:
        named = ", ".join(f"{name} is database {oid} of server {system}" for name, (system, oid) in databases.items())
        reason = f"its sources are not of one database, so no position means the same in all: {named}"
        raise LakeError(f"group {group}", reason, "correct `groups`, or the dsn of the source that is wrong")


def _check_looked_since(group: str, members: Sequence[_Member]) -> None:
    """Raise TransientError if a source has not landed anything since another one began again.

    That one may have begun again because the server was restored. A drain compares the server with what has landed before
    it lands more, so a manifest written later shows that the other landing is of the same history.
    """
    for begun in members:
        if begun.chain.incarnation == 1:
            continue
        since = begun.chain.head.created_at
        for other in members:
            if other is not begun and time_of(other.chain.newest.created_at) < time_of(since):
                raise TransientError(
                    f"group {group}",
                    f"{begun.name} began incarnation {begun.chain.incarnation} at {since}, and {other.name} has landed"
                    " nothing since: its landing may be of another history of the server",
                    f"see that the drain of {other.name} runs, or {RECOVER}",
                )


def _one_timeline(group: str, members: Sequence[_Member], position: Lsn) -> int:
    """Return the timeline that all sources were on at `position`; raises LakeError if they were on different ones."""
    timelines = {member.name: _timeline(member, position) for member in members}
    numbers = {timeline for timeline, _ in timelines.values()}
    # A landing that began on a later timeline does not say where that one began.
    begins = {began for _, began in timelines.values() if began is not None}
    if len(numbers) > 1 or len(begins) > 1:
        named = ", ".join(
            f"{name} on {timeline}{'' if began is None else f' (since {began})'}"
            for name, (timeline, began) in timelines.items()
        )
        raise LakeError(
            f"group {group}",
            f"at {position} its sources are on different timelines of the server: {named}",
            f"see which server is right; for the other source {RECOVER}",
        )
    return numbers.pop()


def _timeline(member: _Member, position: Lsn) -> tuple[int, Lsn | None]:
    """Return the timeline of a source's server at a position, and where that one began, if it is recorded."""
    followed = newest_followed(member.chain)
    if followed is None:
        return member.source.timeline, None
    began = None
    for switch in followed.switches:
        if switch.at_lsn >= position:
            return switch.timeline, began
        began = switch.at_lsn
    return followed.timeline, began
