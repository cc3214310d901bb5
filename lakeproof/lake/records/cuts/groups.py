"""The cuts of groups: which cuts of several sources of one database are at one position, so can be read as one.

Making a group's cut is in `lakeproof.compaction.group`; FORMAT.md has the document's fields.

Each group has its own sequence of numbers, and a number is given once, by put-if-absent. A group's newest cut keeps the cuts
that it names; an older one goes with the first of its cuts that goes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from lakeproof.errors import LakeError
from lakeproof.field_types import Count, CycleField, IncarnationField, LsnField, TableField
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber
from lakeproof.storage.document import Document, Part, TimeField
from lakeproof.storage.paths import GROUPS, LakePaths
from lakeproof.storage.store import Store, number_in, put_new
from lakeproof.storage.times import time_of


@dataclass(frozen=True, slots=True)
class GroupMember(Part):
    """One source in a group's cut: the number of its cut, and its held tables, each with the position where it stands."""

    cut: CycleField
    incarnation: IncarnationField
    held: Mapping[TableField, LsnField]


@dataclass(frozen=True, slots=True)
class GroupCut(Document):
    """Cuts of all sources of a group, all at `position` on the `timeline` of one server.

    `commit_time` is the greatest of the cuts', None if no cut has one.
    """

    FORMAT = "lakeproof.groupcut/1"

    number: Count
    group: str
    position: LsnField
    commit_time: TimeField | None
    system_id: str
    timeline: Count
    database_oid: Count
    sources: Mapping[str, GroupMember]
    created_at: str

    def names(self, source: str) -> CycleNumber | None:
        """Return the number of the source's cut, None if the source is not in this cut."""
        member = self.sources.get(source)
        return None if member is None else member.cut


def groups_of(store: Store) -> list[str]:
    """Return the groups that have had a cut."""
    return store.folders(GROUPS)


def group_cut_numbers(store: Store, group: str) -> list[int]:
    """Return the numbers of the group's cuts that are kept, ascending; raises LakeError for a foreign file."""
    return [number_in(key) for key in store.list(LakePaths.group_cuts(group))]


def read_group_cut(store: Store, group: str, number: int) -> GroupCut:
    """Return one cut of a group; raises LakeError if it is missing or damaged."""
    key = LakePaths.group_cut(group, number)
    cut = GroupCut.read(store, key)
    if cut is None:
        raise LakeError(f"group {group}: cut {number}", "there is no such cut", "ask for a cut that is kept")
    if (cut.number, cut.group) != (number, group):
        reason = f"it says that it is cut {cut.number} of group {cut.group}"
        raise LakeError(store.url(key), reason, "restore it from a backup")
    return cut


def newest_group_cut(store: Store, group: str) -> GroupCut | None:
    """Return the group's newest cut, None if it has none; raises LakeError if it is damaged."""
    numbers = group_cut_numbers(store, group)
    return read_group_cut(store, group, numbers[-1]) if numbers else None


def group_cuts(store: Store, group: str) -> dict[str, CycleNumber]:
    """Return the number of each source's cut in the group's newest cut; empty if it has none."""
    newest = newest_group_cut(store, group)
    return {} if newest is None else {source: member.cut for source, member in newest.sources.items()}


def group_cut_at(store: Store, group: str, position: Lsn) -> GroupCut:
    """Return the newest cut at or before `position`; raises LakeError if there is none. Reads O(log n) cuts.

    Positions are those of the newest cut's server and incarnations.
    """
    newest = newest_group_cut(store, group)

    def place(cut: GroupCut) -> int:
        return int(cut.position) if newest is not None and _lives(cut) == _lives(newest) else -1

    return _last(store, group, int(position), place, f"at or before {position}")


def group_cut_at_time(store: Store, group: str, time: datetime) -> GroupCut:
    """Return the newest cut with no transaction that committed after `time`; raises LakeError if there is none."""

    def seconds(cut: GroupCut) -> float:
        return -1.0 if cut.commit_time is None else time_of(cut.commit_time).timestamp()

    return _last(store, group, time.timestamp(), seconds, f"at or before {time.isoformat()}")


def put_group_cut(store: Store, cut: GroupCut) -> None:
    """Write a cut, durably; raises TransientError if its number is taken."""
    thing = f"group {cut.group}: cut {cut.number}"
    put_new(store, LakePaths.group_cut(cut.group, cut.number), cut.to_bytes(), thing)


def pinned_cut(store: Store, groups: Iterable[str], source: str) -> CycleNumber | None:
    """Return the oldest cut of the source that the newest cut of one of `groups` names; None if none does."""
    newest = [newest_group_cut(store, group) for group in groups]
    return min((n for cut in newest if cut is not None and (n := cut.names(source)) is not None), default=None)


def group_cuts_before(store: Store, source: str, oldest: CycleNumber) -> list[str]:
    """Return the cuts of all groups, oldest first, that name a cut of the source before `oldest`."""
    keys = []
    for group in groups_of(store):
        for number in group_cut_numbers(store, group):
            key = LakePaths.group_cut(group, number)
            cut = GroupCut.read(store, key)
            # Maintenance of another of its sources may have removed it meanwhile.
            named = None if cut is None else cut.names(source)
            if named is not None and named >= oldest:
                break
            keys += [] if named is None else [key]
    return keys


def _last(store: Store, group: str, limit: float, place: Callable[[GroupCut], float], words: str) -> GroupCut:
    numbers = group_cut_numbers(store, group)
    index = bisect_right(numbers, limit, key=lambda n: place(read_group_cut(store, group, n)))
    cut = read_group_cut(store, group, numbers[index - 1]) if index else None
    if cut is None or place(cut) < 0:
        remedy = f"ask for a later one, or run `lakeproof compact --group {group}`"
        raise LakeError(f"group {group}: cuts", f"there is no cut {words}", remedy)
    return cut


def _lives(cut: GroupCut) -> tuple[object, ...]:
    return cut.system_id, {source: member.incarnation for source, member in cut.sources.items()}
