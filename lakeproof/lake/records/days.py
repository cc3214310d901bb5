"""The days that a table's Delta table of days has, each with the position that its rows were read at.

The rows do not belong here (`lakeproof.lake.delta.day_table`). A day is noted after its commit: one that a killed run has
committed is not noted, and is made again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date

from lakeproof.field_types import Count, LsnField
from lakeproof.names import TableName
from lakeproof.storage.document import Document, Part
from lakeproof.storage.source_lake import SourceLake


@dataclass(frozen=True, slots=True)
class DayEntry(Part):
    """One day: the position, and the rows there; `columns_sha256` is that of the columns that they had.

    `is_over`: the lake had a commit of a later day when it was read.
    """

    position: LsnField
    rows: Count
    columns_sha256: str
    is_over: bool
    made_at: str


@dataclass(frozen=True, slots=True)
class Days(Document):
    """All days of a table, by their dates."""

    FORMAT = "lakeproof.days/1"

    days: Mapping[str, DayEntry]


def read_days(lake: SourceLake, table: TableName) -> Mapping[str, DayEntry]:
    """Return the days of a table, by their dates."""
    noted = Days.read(lake.store, lake.paths.days(table))
    return {} if noted is None else noted.days


def note_day(lake: SourceLake, table: TableName, day: date, entry: DayEntry) -> None:
    """Add a day, or replace it; the caller holds the lock of days."""
    days = Days(read_days(lake, table))
    noted = replace(days, days=dict(sorted({**days.days, day.isoformat(): entry}.items())))
    lake.store.put(lake.paths.days(table), noted.to_bytes())
