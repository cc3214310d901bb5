"""Ordinals: the order of all rows of a table's history, across segments, snapshots and cycles.

An ordinal is `_lp_ord`; giving it to rows does not belong here but where rows are read.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakeproof.errors import InvariantError
from lakeproof.lake.records.documents import SegmentOrdinal
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber

ORDINAL_BITS = 36


def segment_ordinals(
    chain: Chain, start: Lsn, end: Lsn, number: CycleNumber, *, snapshot_rows: int = 0
) -> tuple[SegmentOrdinal, ...]:
    """Return the segments with rows in (start, end], numbered through from `number * 2**36 + snapshot_rows`.

    A snapshot's rows are older than the changes that follow it, so the first ordinals are theirs.
    """
    ordinal = snapshot_ordinal(number) + snapshot_rows
    ordinals = []
    for manifest in chain.between(start, end):
        if manifest.files:
            ordinals.append(SegmentOrdinal(manifest.number, ordinal))
            ordinal += manifest.rows
    if ordinal >= (number + 1) << ORDINAL_BITS:
        raise InvariantError(f"cycle {number}", "it has more rows than ordinals", "lower compaction.cycle_rows")
    return tuple(ordinals)


def snapshot_ordinal(number: CycleNumber) -> int:
    """Return the `_lp_ord` of a table's first snapshot row in a cycle."""
    return number << ORDINAL_BITS


def ordinal_after(chain: Chain, segments: Iterable[SegmentOrdinal], number: CycleNumber) -> int:
    """Return the first `_lp_ord` of the cycle that no change has."""
    last = max(segments, key=lambda s: s.first_ordinal, default=None)
    return snapshot_ordinal(number) if last is None else last.first_ordinal + chain.manifest(last.number).rows
