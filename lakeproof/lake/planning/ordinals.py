"""Ordinals: the order of all rows of a table's history, across segments, snapshots and cycles."""

from __future__ import annotations

from collections.abc import Iterable

from lakeproof.errors import InvariantError
from lakeproof.lake.records.documents import SegmentBase
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber

ORDINAL_BITS = 36


def segment_bases(
    chain: Chain, start: Lsn, end: Lsn, number: CycleNumber, *, snapshot_rows: int = 0
) -> tuple[SegmentBase, ...]:
    """The segments with rows in (start, end], numbered through from `number * 2**36 + snapshot_rows`.

    A snapshot's rows are older than the changes that follow it, so the first ordinals are theirs.
    """
    base = snapshot_ordinal(number) + snapshot_rows
    bases = []
    for manifest in chain.between(start, end):
        if manifest.files:
            bases.append(SegmentBase(manifest.number, base))
            base += manifest.rows
    if base >= (number + 1) << ORDINAL_BITS:
        raise InvariantError(f"cycle {number}", "it has more rows than ordinals", "lower compaction.cycle_rows")
    return tuple(bases)


def snapshot_ordinal(number: CycleNumber) -> int:
    """The `_lp_ord` of a table's first snapshot row in a cycle."""
    return number << ORDINAL_BITS


def ordinal_after(chain: Chain, segments: Iterable[SegmentBase], number: CycleNumber) -> int:
    """The first `_lp_ord` of the cycle that no change has."""
    last = max(segments, key=lambda s: s.base, default=None)
    return snapshot_ordinal(number) if last is None else last.base + chain.manifest(last.number).rows
