"""The ordinals of a cycle's range: the segments with its rows as the chain has them, and what `landing_order` makes of them.

Giving ordinals to rows does not belong here but where rows are read.
"""

from __future__ import annotations

from lakeproof.lake.planning.landing_order import CycleOrdinals, Place, SegmentRows, cycle_ordinals
from lakeproof.lake.records.cut_ordinals import CutOrdinals
from lakeproof.lake.records.documents import Cut
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn


def range_ordinals(chain: Chain, cut: Cut | None, first: Lsn, end: Lsn) -> CycleOrdinals:
    """Return the ordinals of the cycle after `cut` that ends at `end`; tables that enter with it take rows after `first`."""
    start = chain.head.end_lsn if cut is None else cut.position
    head = chain.head.first_ordinal
    segments: list[SegmentRows] = []
    ends_inside = False
    for manifest in chain.between(first, end):
        last = manifest.last_commit
        if last is not None:
            place = Place.OVER if last.end_lsn <= start else Place.BEGUN if manifest.start_lsn < start else Place.AHEAD
            segments.append(SegmentRows(manifest.number, manifest.first_ordinal, manifest.rows, place))
            ends_inside = last.end_lsn > end
    return cycle_ordinals(CutOrdinals(head, head) if cut is None else cut.ordinals, segments, ends_inside=ends_inside)
