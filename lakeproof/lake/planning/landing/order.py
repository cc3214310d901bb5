"""The place of a cycle's rows in the total order of a table's history, counted by `landing.segments.row_order`.

The segments that a cycle takes rows of are read in `ordinals`. `plan` chooses the rows.

    rows of a segment    as the landing has counted them
    a cycle's own rows   (corrections, gap, reset, defaults) true at the cycle's end: behind the last row that it takes

Behind each segment there is room for cycles' own rows. If a cycle with such rows ends inside a segment, the rows of that
segment behind its end must come after them: they get other ordinals than the landing's, and can't be linked. So do segments
behind more rows than the room has. Any other cycle leaves the landing's ordinals as they are.

Invariant: of two rows of one table's history, the one that became true first has the smaller ordinal; and a row belongs to a
cut if and only if `CutOrdinals.has` says so, whatever cycles wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from lakeproof.lake.records.documents import Cut, CutOrdinals
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn


class SegmentPlace(Enum):
    """The place of a segment's rows relative to the cut before: none are in it, some are, or all are.

    A cycle takes rows of the last kind for tables that enter with it.
    """

    AHEAD = "ahead"
    BEGUN = "begun"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """A segment that a cycle takes rows of: its manifest's number, `first_ordinal` and rows."""

    number: int
    first_ordinal: int
    rows: int
    place: SegmentPlace = SegmentPlace.AHEAD


@dataclass(frozen=True, slots=True)
class CycleOrdinals:
    """The ordinals of a cycle: of row 0 of each segment by its number, and of the cycle's first own row.

    `cut` are those of its cut if it has no own rows.
    """

    segments: dict[int, int]
    own: int
    cut: CutOrdinals


def cycle_ordinals(before: CutOrdinals, segments: Sequence[SegmentRows], *, ends_inside: bool) -> CycleOrdinals:
    """Return the ordinals of the cycle after the cut `before`, which takes rows of `segments`, in the chain's order.

    `ends_inside`: the last segment has rows behind the cycle's end.
    """
    firsts: dict[int, int] = {}
    behind = before.end
    for segment in segments:
        # Rows of a begun segment go on where the cut before left off, which is the landing's own place without own rows.
        first = before.whole if segment.place is SegmentPlace.BEGUN else segment.first_ordinal
        if segment.place is SegmentPlace.AHEAD:
            first = max(first, behind)
        firsts[segment.number] = first
        behind = max(behind, first + segment.rows)
    if all(s.place is SegmentPlace.OVER for s in segments):
        return CycleOrdinals(firsts, behind, before)
    return CycleOrdinals(firsts, behind, CutOrdinals(firsts[segments[-1].number] if ends_inside else behind, behind))


def range_ordinals(chain: Chain, cut: Cut | None, first: Lsn, end: Lsn) -> CycleOrdinals:
    """Return the ordinals of the cycle after `cut` that ends at `end`; tables that enter with it take rows after `first`."""
    start = chain.head.end_lsn if cut is None else cut.position
    head = chain.head.first_ordinal
    segments: list[SegmentRows] = []
    ends_inside = False
    for manifest in chain.between(first, end):
        last = manifest.last_commit
        if last is not None:
            place = (
                SegmentPlace.OVER
                if last.end_lsn <= start
                else SegmentPlace.BEGUN
                if manifest.start_lsn < start
                else SegmentPlace.AHEAD
            )
            segments.append(SegmentRows(manifest.number, manifest.first_ordinal, manifest.rows, place))
            ends_inside = last.end_lsn > end
    return cycle_ordinals(CutOrdinals(head, head) if cut is None else cut.ordinals, segments, ends_inside=ends_inside)
