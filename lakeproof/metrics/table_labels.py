"""Bounds the number of tables that have figures of their own: a source may have tens of thousands.

The figures are in `definitions.py`.
"""

from __future__ import annotations

import threading

from lakeproof.names import TableName

# The label of all other tables. No table has it: a table's has a dot.
OTHER = "other"


class TableLabels:
    """The labels of the first `tables_max` tables that change, over all sources of a process; all others share one."""

    def __init__(self, tables_max: int) -> None:
        self._tables_max = tables_max
        self._labels: dict[tuple[str, TableName], str] = {}
        self._lock = threading.Lock()

    def label(self, source: str, table: TableName) -> str:
        """Return the table's label."""
        with self._lock:
            existing = self._labels.get((source, table))
            if existing is not None:
                return existing
            if len(self._labels) >= self._tables_max:
                return OTHER
            return self._labels.setdefault((source, table), str(table))
