"""Choosing the cuts at which a lake is read: the newest, or the newest that do not go past a position or a time; and ranges.

Reading tables at them, and what changed between them, belongs to `lakeproof.lake.read`. A range has the cuts whose changes a
feed gives, of a source or of a view, and the one that they follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config, location_of
from lakeproof.errors import ConfigError, LakeError
from lakeproof.lake.records.cuts.groups import (
    GroupCut,
    group_cut_at,
    group_cut_at_time,
    groups_of,
    newest_group_cut,
    read_group_cut,
)
from lakeproof.lake.records.documents import Cut, CutTable, CycleKind
from lakeproof.lake.records.store import cut_at, cut_at_time, cut_numbers, newest_cut, read_cut
from lakeproof.lake.records.views.cuts import ViewCut, cuts_in_order, newest_first, newest_view_cut
from lakeproof.landing.missing import check_is_lake
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, TableName
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import BESIDE_VIEWS, RESERVED, VIEWS, LakePaths
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import Store

# `newest`, a position (as a value or as PostgreSQL's text), a cut's number, or a time of the source's clock.
At: TypeAlias = str | Lsn | int | datetime
NEWEST = "newest"


class LakeAtCuts:
    """A lake pinned at `cuts`, one per source that has any: what readers with and without Spark have in common."""

    __slots__ = ()
    lake: LakeLocation
    cuts: Mapping[str, Cut]

    def __repr__(self) -> str:
        """Return the folder and the cuts' numbers; the cuts' own text has every column of every table."""
        cuts = ", ".join(f"{name} at cut {cut.number} ({cut.position})" for name, cut in self.cuts.items())
        return f"<lake {self.lake}: {cuts or 'no cut yet'}>"

    @property
    def sources(self) -> list[str]:
        """The sources that have a cut."""
        return list(self.cuts)

    def tables(self, source: str | None = None) -> list[TableName]:
        """Return the tables of a source, which may be left out if there is one; raises LakeError as `cut`."""
        return sorted(self.cut(only_source("tables", self.sources, source)).tables)

    def position(self, source: str) -> Lsn:
        """Return the position of the source's tables (held ones excepted); raises LakeError if the lake has no cut of it."""
        return self.cut(source).position

    def cut(self, source: str) -> Cut:
        """Return the source's cut; raises LakeError if the lake has none."""
        cut = self.cuts.get(source)
        if cut is None:
            others = f"name one of {self.sources}, or " if self.cuts else ""
            remedy = f"{others}run `lakeproof compact {source}`"
            raise LakeError(f"{source}: cuts", "the lake has no cut of this source", remedy)
        return cut

    def views(self) -> list[str]:
        """Return the views that the lake has, whether or not they were computed at the opened cuts."""
        return [name for name in open_store(self.lake).folders(VIEWS) if name not in BESIDE_VIEWS]

    def view_cut(self, name: str) -> ViewCut:
        """Return the cut of a view that was computed at just the opened cuts.

        Raises LakeError if no refresh that is kept has computed it at just these cuts of the sources that it reads; the
        error names the newest cuts before them at which it was. And if its table was moved away since. Cost: looks backwards
        through the views' cuts.
        """
        views = self.views()
        if name not in views:
            others = f"name one of {views}" if views else "run `lakeproof refresh`"
            raise LakeError(f"view {name[:80]}", "the lake has no view of this name", others)
        store = open_store(self.lake)
        of_view = (cut for cut in newest_first(store) if cut.view == name)
        before: ViewCut | None = None
        later: ViewCut | None = None
        for cut in of_view:
            if later is not None and _is_remade(cut, later):
                raise self._not_at_these_cuts(name, before, "its table of before was moved away")
            later = cut
            if all(source in self.cuts and self.cuts[source].number == n for source, n in cut.sources.items()):
                return cut
            if before is None and all(s in self.cuts and self.cuts[s].number > n for s, n in cut.sources.items()):
                before = cut
        raise self._not_at_these_cuts(name, before, "that is not kept")

    def _not_at_these_cuts(self, name: str, before: ViewCut | None, why: str) -> LakeError:
        numbers = ", ".join(f"{source} {cut.number}" for source, cut in self.cuts.items())
        remedy = "run `lakeproof refresh`, then open the lake again"
        if before is not None:
            last_cuts = {source: int(number) for source, number in before.sources.items()}
            remedy = f"open the lake at={last_cuts}, at which it was last computed before; or {remedy}"
        return LakeError(f"view {name}", f"it was not computed at the opened cuts ({numbers}), or {why}", remedy)


def cuts_at(
    lake: Config | LakeLocation | str | Path, at: At | Mapping[str, At] = NEWEST, group: str | None = None
) -> dict[str, Cut]:
    """Return the cut of each source that has one; with `group`, of the group's sources, as one of its cuts names them.

    Raises ConfigError for an ambiguous `at`, LakeError if there is no such cut.
    """
    store = open_store(location_of(lake))
    if group is not None:
        return _group_cuts(store, group, at)
    names = sources_to_read(lake)
    requested = _requested(names, at)
    cuts = {}
    for source in names:
        cut = _cut(SourceLake(store, LakePaths(source)), requested.get(source, NEWEST))
        if cut is not None:
            cuts[source] = cut
    return cuts


def _group_cuts(store: Store, group: str, at: At | Mapping[str, At]) -> dict[str, Cut]:
    if isinstance(at, Mapping):
        raise ConfigError("at", "a group's sources are at one position", "give one value for all of them")
    moment = parsed_at(at)
    if isinstance(moment, datetime):
        named: GroupCut | None = group_cut_at_time(store, group, moment)
    elif isinstance(moment, Lsn):
        named = group_cut_at(store, group, moment)
    elif isinstance(moment, int):
        named = read_group_cut(store, group, moment)
    else:
        named = newest_group_cut(store, group)
    if named is None:
        others = groups_of(store)
        reason = "the lake has no cut of this group"
        hint = f"name one of {others}, or " if others else ""
        raise LakeError(f"group {group[:80]}", reason, f"{hint}run `lakeproof compact --group {group[:80]}`")
    return {
        source: read_cut(SourceLake(store, LakePaths(source)), member.cut) for source, member in named.sources.items()
    }


def sources_to_read(lake: Config | LakeLocation | str | Path) -> list[str]:
    """Return a configuration's sources, or those that have a folder with cycles in a lake.

    Raises LakeError if nothing is in the lake's place.
    """
    store = open_store(location_of(lake))
    check_is_lake(store)
    if isinstance(lake, Config):
        return list(lake.sources)
    names = (name for name in store.folders("") if name not in RESERVED and not name.startswith("."))
    return [name for name in names if "cycles" in store.folders(name)]


def one_source(what: str, lake: Config | LakeLocation | str | Path, source: str | None) -> SourceLake:
    """Open the part of `source`, or of the only one; raises ConfigError about `what` if it must be named."""
    return SourceLake.open(location_of(lake), only_source(what, sources_to_read(lake), source))


def only_source(what: str, names: Sequence[str], source: str | None) -> str:
    """Return `source`, or else the only one of `names`; raises ConfigError about `what` if it must be named."""
    if source is None and len(names) != 1:
        remedy = f"name one of them: {', '.join(names)}" if names else "bootstrap one, and compact it"
        raise ConfigError(what, f"the lake has {len(names)} sources", remedy)
    return names[0] if source is None else source


def check_kept(lake: SourceLake, cut: Cut) -> None:
    """Raise LakeError if the cut, which a reader may have opened long ago, is no longer kept."""
    if not lake.store.exists(lake.paths.cut(cut.number)):
        raise LakeError(
            f"{lake.source}: cut {cut.number}",
            "it is not kept any more, and files that only it needed are gone",
            "open the lake again, at a cut that is kept (`retention.cuts_s` says for how long)",
        )


def parsed_at(at: At) -> str | Lsn | int | datetime:
    """Return `at` with a position's text as an `Lsn`; raises ConfigError for other texts and times without a zone."""
    if isinstance(at, datetime) and at.tzinfo is None:
        raise ConfigError("at", "a time without a zone means another time elsewhere", "give the datetime a tzinfo")
    if not isinstance(at, str) or at == NEWEST:
        return at
    try:
        return Lsn.parse(at)
    except ValueError as error:
        raise ConfigError("at", str(error), "give `newest`, a position, a cut's number or a datetime") from None


def table_name(table: TableName | str) -> TableName:
    """Return a table as a value; raises ConfigError if the text is not `schema.table`."""
    if isinstance(table, TableName):
        return table
    schema, dot, name = table.partition(".")
    if not dot or not schema or not name:
        raise ConfigError(f"table {table[:80]}", "is not schema.table", "give a TableName where a name has a dot")
    return TableName(schema, name)


def _requested(sources: Iterable[str], at: At | Mapping[str, At]) -> Mapping[str, At]:
    names = list(sources)
    if isinstance(at, Mapping):
        for source in at:
            if source not in names:
                raise ConfigError(f"source {source[:80]}", "the lake has none of that name", f"name one of {names}")
        return at
    # A time is one for all sources, as far as their clocks agree.
    if len(names) > 1 and at != NEWEST and not isinstance(at, datetime):
        raise ConfigError("at", "a position or cut belongs to one source", "write {source: position}")
    return dict.fromkeys(names, at)


def _cut(lake: SourceLake, at: At) -> Cut | None:
    place = parsed_at(at)
    if isinstance(place, datetime):
        return cut_at_time(lake, place)
    if isinstance(place, Lsn):
        return cut_at(lake, place)
    if isinstance(place, str):
        return newest_cut(lake)
    return read_cut(lake, CycleNumber(place))


FROM_NOTHING = "begin with 0: the first changes are then the whole view"


def range_end(lake: SourceLake, first: int, last: int | None) -> CycleNumber:
    """Return `last`, by default the newest cut's number; 0 if there is no cut.

    Raises ConfigError for cuts in the wrong order, LakeError if one of them is not there or not kept.
    """
    kept = cut_numbers(lake)
    end = (kept[-1] if kept else 0) if last is None else last
    _check_order(first, end)
    _check_kept(lake, kept, first, end)
    return CycleNumber(end)


def cuts_of_range(lake: SourceLake, first: int, last: int) -> list[Cut]:
    """Return cut `first`, unless it is 0, and those after it up to `last`; raises LakeError if one is no longer kept."""
    _check_kept(lake, cut_numbers(lake), first, last)
    return [read_cut(lake, CycleNumber(n)) for n in range(max(1, first), last + 1)]


def table_differs(name: TableName, before: CutTable | None, cut: Cut) -> bool:
    """True if a table at a cut may have other rows or columns than `before` (None: it was not there)."""
    now = cut.tables[name]
    if before is None or before.version.id != now.version.id:
        return True
    return cut.kind is not CycleKind.MAINTENANCE and before.current_version != now.current_version


def view_range_end(store: Store, view: str, first: int, last: int | None) -> CycleNumber:
    """Return `last`, by default the number of the view's newest cut; raises as `range_end`."""
    cut = newest_view_cut(store, view)
    if cut is None:
        raise LakeError(f"view {view[:80]}", "it has no cut", "run `lakeproof refresh`")
    # Of another view a later number may come first.
    newest = int(cut.number)
    end = newest if last is None else last
    _check_order(first, end)
    if end > newest:
        raise LakeError(f"view {view[:80]}: cut {end}", "there is no such cut of it yet", "ask for an earlier one")
    return CycleNumber(end)


def view_cuts_of_range(store: Store, view: str, first: int, last: int) -> list[ViewCut | None]:
    """Return the view's cut that the range follows (None: nothing), and those of the range.

    If the range has none, the second is the first again. Raises LakeError if the first is no longer kept, or there is none.
    """
    of_view = [cut for cut in cuts_in_order(store) if cut.view == view]
    of_view.sort(key=lambda cut: cut.number)
    before = [cut for cut in of_view if cut.number <= first]
    inside = [cut for cut in of_view if first < cut.number <= last]
    if not before and first > 0:
        raise LakeError(f"view {view[:80]}", f"no cut of it at or before {first} is kept", FROM_NOTHING)
    if not before and not inside:
        raise LakeError(f"view {view[:80]}", "no cut of the range has this view", "ask for later cuts")
    return [before[-1] if before else None, *(inside or [before[-1]])]


def check_follows(before: ViewCut, after: ViewCut) -> None:
    """Raise LakeError if the view's table was moved away between two of its cuts, so that its log begins anew."""
    if _is_remade(before, after):
        reason = f"its table was moved away, and made anew for cut {after.number}"
        raise LakeError(f"view {after.view[:80]}", reason, FROM_NOTHING)


def _is_remade(before: ViewCut, after: ViewCut) -> bool:
    """True if the log began anew between two cuts of a view: its versions go back, or rows came without a new one."""
    came = before.delta_version == after.delta_version and bool(after.inserted or after.retracted)
    return before.delta_version > after.delta_version or came


def _check_order(first: int, last: int) -> None:
    if not 0 <= first <= last:
        raise ConfigError("changes", f"cut {first} does not lie before cut {last}", "give the earlier cut first")


def _check_kept(lake: SourceLake, kept: list[CycleNumber], first: int, last: int) -> None:
    if last and (not kept or last > kept[-1]):
        raise LakeError(f"{lake.source}: cut {last}", "there is no such cut", "ask for an earlier one")
    if kept and max(1, first) < kept[0]:
        raise LakeError(
            f"{lake.source}: cut {first}",
            f"it is not kept any more, the oldest is {kept[0]}",
            "read the tables whole at a cut, and go on from there (`retention.cuts_s` says how long they are kept)",
        )
