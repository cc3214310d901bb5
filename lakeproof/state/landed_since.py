"""Counts the changes of each table that have landed since a cut, for those who report what cycles of others have done.

What a cycle has done is in its own report (`lakeproof.lake.cycle.runner`); this is for cycles whose report is lost, and
works from manifests: a file is read only if a range ends inside it.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakeproof.errors import LakeproofError
from lakeproof.lake.records.documents import Cut, CutTable
from lakeproof.lake.records.store import read_cut
from lakeproof.landing.chain import Chain
from lakeproof.landing.manifest import Manifest, SegmentFile
from lakeproof.landing.reader import Slice, count_changes
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, TableName
from lakeproof.storage.source_lake import SourceLake

# As many manifests as a drain writes in an hour or two; reading more takes longer than the number is worth.
SEGMENTS_MAX = 5000


def changed_between(lake: SourceLake, after: CycleNumber, cut: Cut) -> list[TableName]:
    """Return the tables that have another version at `cut` than at the cut `after`, or were not there.

    Raises LakeError if that cut is not kept.
    """
    before = read_cut(lake, after).tables if after else {}
    return [
        name
        for name, table in cut.tables.items()
        if (old := before.get(name)) is None or _versions(old) != _versions(table)
    ]


def changes_since(lake: SourceLake, since: Mapping[TableName, CycleNumber], cut: Cut) -> dict[TableName, int]:
    """Return the changes of each table after the cut that `since` names (0: after its copy) and up to `cut`.

    A table whose number can't be known any more, or only by reading more than SEGMENTS_MAX manifests, is left out.
    """
    ranges = {table: (start, cut.tables[table].at_lsn) for table, start in _starts(lake, since, cut).items()}
    counts = dict.fromkeys(ranges, 0)
    ranges = {table: (start, end) for table, (start, end) in ranges.items() if start < end}
    if not ranges:
        return counts
    first, last = min(start for start, _ in ranges.values()), max(end for _, end in ranges.values())
    try:
        chain = Chain.open(lake, cut.incarnation)
        if chain.number_after(last) - chain.number_after(first) > SEGMENTS_MAX:
            return {table: count for table, count in counts.items() if table not in ranges}
        for manifest in chain.between(first, last):
            for file in manifest.files:
                if file.table in ranges:
                    counts[file.table] += _changes(chain, manifest, file, *ranges[file.table])
    except LakeproofError:
        # The retention has removed the beginning.
        return {table: count for table, count in counts.items() if table not in ranges}
    return counts


def _changes(chain: Chain, manifest: Manifest, file: SegmentFile, start: Lsn, end: Lsn) -> int:
    if end <= manifest.start_lsn or manifest.end_lsn <= start:
        return 0
    whole = start <= manifest.start_lsn and manifest.end_lsn <= end
    return count_changes([Slice(chain, manifest.number, manifest.first_ordinal, file, whole)], start, end).changes


def _starts(lake: SourceLake, since: Mapping[TableName, CycleNumber], cut: Cut) -> dict[TableName, Lsn]:
    """Return where the changes of each table begin; a table of which that is not known is left out."""
    cuts: dict[CycleNumber, Cut | None] = {}
    starts: dict[TableName, Lsn] = {}
    for table, number in since.items():
        if number not in cuts:
            cuts[number] = _kept(lake, number)
        before = cuts[number]
        old = None if before is None else before.tables.get(table)
        now = cut.tables[table]
        if old is not None and old.incarnation == now.incarnation:
            starts[table] = old.at_lsn
        elif (number == 0 or before is not None) and now.snapshot_incarnation == now.incarnation:
            # It entered with a copy since.
            starts[table] = now.snapshot_lsn
    return starts


def _kept(lake: SourceLake, number: CycleNumber) -> Cut | None:
    try:
        return read_cut(lake, number) if number else None
    except LakeproofError:
        return None


def _versions(table: CutTable) -> tuple[int, int]:
    return table.history_version, table.current_version
