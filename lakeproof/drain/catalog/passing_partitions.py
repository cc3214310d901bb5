"""Partitions whose rows came as those of the table above them, though no reading of the catalog has them there.

The stream announces a partition before its rows, which then go by the name of the published root. One that was made, filled
and dropped between two readings, or attached, changed and detached, leaves no other trace: the root keeps rows that are
gone, and a table that was a partition for a while lacks what came to it.

`watch.py` makes the readings. A partition is judged by one that is made once its transaction can be seen.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from lakeproof.catalog.differences import Difference, TableDifferences
from lakeproof.catalog.fingerprint import Fingerprint
from lakeproof.lsn import Lsn
from lakeproof.names import Oid
from lakeproof.pgoutput.rows import PartitionRows
from lakeproof.postgres.catalog.origins import writing_xids
from lakeproof.postgres.connections.connect import Connection, source_errors

# The wait for transactions whose commits have come and can't be seen yet.
_VISIBLE_S = 0.5
_STEP_S = 0.01


@dataclass(slots=True)
class PassingPartitions:
    """The partitions of one drain that no reading has below their root, until they are judged."""

    _waiting: dict[tuple[Oid, Oid], PartitionRows] = field(default_factory=dict)
    _judged_until: dict[tuple[Oid, Oid], Lsn] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def note(self, partition: PartitionRows, readings: Iterable[Fingerprint | None]) -> bool:
        """Note a partition that none of the readings has; False for any other, or if it waits or was judged already."""
        pair = partition.partition, partition.root
        if pair in self._waiting or partition.transaction.end_lsn <= self._judged_until.get(pair, Lsn.ZERO):
            return False
        if any(_is_below(partition, reading) for reading in readings):
            return False
        self._waiting[pair] = partition
        return True

    def visible(self, conn: Connection) -> list[PartitionRows]:
        """Return those whose transaction a reading from now on has; waits a little for others. Raises as `source_errors`."""
        deadline = time.monotonic() + _VISIBLE_S
        while self._waiting:
            with source_errors("the source's catalog"):
                unseen = writing_xids(conn)
            seen = [p for p in self._waiting.values() if str(int(p.transaction.xid)) not in unseen]
            if len(seen) == len(self._waiting) or time.monotonic() > deadline:
                return seen
            time.sleep(_STEP_S)
        return []

    def judge(
        self, seen: Iterable[PartitionRows], changes: Iterable[TableDifferences], old: Fingerprint, new: Fingerprint
    ) -> tuple[list[TableDifferences], Lsn | None]:
        """Return the changes, with those of tables that partitions went by, and the position before the first of these."""
        by_oid = {change.oid: change for change in changes}
        since: Lsn | None = None
        for partition in seen:
            if _is_below(partition, old) or _is_below(partition, new):
                continue
            for oid in {partition.root, partition.partition, *_roots(partition, new)} & new.tables.keys():
                by_oid[oid] = _passed(oid, by_oid.get(oid), old, new)
            before = Lsn(int(partition.transaction.end_lsn) - 1)
            since = before if since is None else min(since, before)
        return [by_oid[oid] for oid in sorted(by_oid)], since

    def end(self, seen: Iterable[PartitionRows], upper_lsn: Lsn) -> None:
        """Forget partitions that were judged by a reading; what comes of them until `upper_lsn` is judged, too."""
        for partition in seen:
            pair = partition.partition, partition.root
            self._waiting.pop(pair, None)
            self._judged_until[pair] = upper_lsn


def _passed(oid: Oid, change: TableDifferences | None, old: Fingerprint, new: Fingerprint) -> TableDifferences:
    if change is None:
        before = old.digest(oid) if oid in old.tables else None
        return TableDifferences(oid, new.tables[oid].table, (Difference.PARTITION_PASSED,), before, new.digest(oid))
    differences = dict.fromkeys([*change.differences, Difference.PARTITION_PASSED])
    return replace(change, differences=tuple(differences), created=None)


def _is_below(partition: PartitionRows, reading: Fingerprint | None) -> bool:
    root = None if reading is None else reading.tables.get(partition.root)
    return root is not None and int(partition.partition) in _leaves(root.leaves_text)


def _roots(partition: PartitionRows, reading: Fingerprint) -> set[Oid]:
    """Return the published tables that the partition is below now: they lack what went by another name."""
    return {oid for oid, table in reading.tables.items() if int(partition.partition) in _leaves(table.leaves_text)}


@lru_cache(maxsize=256)
def _leaves(text: str) -> frozenset[int]:
    return frozenset(leaf[0] for leaf in json.loads(text))
