"""The work of a compaction as its progress counts it: the cycle's tables and rows, and what is to come after it.

Showing progress does not belong here (`lakeproof.progress`), nor deciding what a cycle takes (`lakeproof.lake.planning`).

The unit is a table that is written. Of copies and ranges the rows are known beforehand, so each adds its part of a unit; the
cycles that schemas call for are not known, and are not counted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from lakeproof.lake.records.documents import Copy, Intent
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.progress import Share
from lakeproof.snapshot.folder import FinishedCopy, read_snapshot

# So many rows take about as long as a small table does.
_ROWS_OF_A_UNIT = 200_000


@dataclass(slots=True)
class WorkLeft:
    """What a compaction of one incarnation has done, and the landed rows that it has not come to."""

    chain: Chain
    rows_ahead: int
    done: float
    began_s: float
    shown: float = 0.0

    @staticmethod
    def begin(chain: Chain, start: Lsn, end: Lsn) -> WorkLeft:
        """Return the work of a compaction from `start` to `end`, of which nothing is done."""
        return WorkLeft(chain, _rows(chain, start, end), 0.0, time.monotonic())

    def share_of(
        self, intent: Intent, copied: Mapping[TableName, int], waiting: Mapping[TableName, FinishedCopy]
    ) -> Share:
        """Return the share of a cycle that enters `copied` rows; copies that are `waiting` enter in a later one.

        The next cycle comes after it.
        """
        rows = _rows(self.chain, intent.start_lsn, intent.end_lsn)
        units = len(intent.tables) + (sum(copied.values()) + rows) / _ROWS_OF_A_UNIT
        self.rows_ahead = max(0, self.rows_ahead - rows)
        later = [copy.table.rows for table, copy in waiting.items() if table not in copied]
        ahead = len(later) + (sum(later) + self.rows_ahead) / _ROWS_OF_A_UNIT
        before, self.done = self.done, self.done + units
        whole, least = before + units + ahead, self.shown
        self.shown = max(least, self.done / whole) if whole else 1.0
        return Share(units, before, whole, time.monotonic() - self.began_s, least)


def units_of(rows: int) -> float:
    """Return what a table with so many rows to be written is of the work."""
    return 1.0 + rows / _ROWS_OF_A_UNIT


def copied_rows(chain: Chain, intent: Intent) -> dict[TableName, int]:
    """Return the rows of each copy that a cycle enters."""
    keys = {t: i.work.folder for t, i in intent.tables.items() if isinstance(i.work, Copy)}
    snapshots = {key: read_snapshot(chain.lake, key) for key in set(keys.values())}
    return {table: snapshots[key].tables[table].rows for table, key in keys.items()}


def _rows(chain: Chain, start: Lsn, end: Lsn) -> int:
    return sum(manifest.rows for manifest in chain.between(start, end))
