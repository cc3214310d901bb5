"""The cuts of a range, of a source or of a view: those whose changes a feed gives, and the one that they follow.

The changes between cuts are in `lakeproof.lake.read`, the choice of one cut in `choice`.
"""

from __future__ import annotations

from lakeproof.errors import ConfigError, LakeError
from lakeproof.lake.records.documents import Cut, CutTable, CycleKind
from lakeproof.lake.records.store import cut_numbers, read_cut
from lakeproof.lake.records.views.cuts import ViewCut, cuts_in_order, newest_view_cut
from lakeproof.names import CycleNumber, TableName
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import Store

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
    remade = before.delta_version > after.delta_version
    if remade or (before.delta_version == after.delta_version and (after.inserted or after.retracted)):
        reason = f"its table was moved away, and made anew for cut {after.number}"
        raise LakeError(f"view {after.view[:80]}", reason, FROM_NOTHING)


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
            "read the tables whole at a cut, and go on from there (`retention.cuts` says how long they are kept)",
        )
