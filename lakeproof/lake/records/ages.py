"""The ages of rows in a lake, by the lake's own clock: up to which ordinal everything was in it at a time.

Removing what is old does not belong here (`lakeproof.commands.maintain`).

A row has the time of its commit alone, and that may be of an upstream's clock, wrong by millennia. So age goes by the times
at which cuts were put. Cuts are kept for days and history for years: maintenance leaves a mark of the newest cut each time.
With fewer marks than there were, rows are kept for longer, never shorter.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import Field

from lakeproof.errors import LakeError
from lakeproof.field_types import Count
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.store import cut_numbers, read_cut
from lakeproof.storage.document import Document, Part, TimeField
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import time_of

# Some three years of daily marks. Beyond it every second one goes, which makes ages less exact, and no row older.
MARKS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Mark(Part):
    """All rows of history below `ordinal` were in the lake at this time."""

    time: Annotated[TimeField, Field(alias="at")]
    ordinal: Count


@dataclass(frozen=True, slots=True)
class Ages(Document):
    """The marks of a source, oldest first."""

    FORMAT = "lakeproof.ages/1"

    marks: tuple[Mark, ...] = ()

    def with_mark(self, new: Mark) -> Ages:
        """Return the marks with a new one, without those that a clock that was ahead has left."""
        marks = [mark for mark in self.marks if mark.time < new.time]
        if not marks or marks[-1].ordinal < new.ordinal:
            marks.append(new)
        if len(marks) > MARKS_MAX:
            marks = [*marks[:-1:2], marks[-1]]
        return Ages(tuple(marks))


def read_ages(lake: SourceLake) -> Ages:
    """Return the marks of a source; none if there is none, or they can't be read."""
    try:
        return Ages.read(lake.store, lake.paths.ages) or Ages()
    except LakeError:
        return Ages()


def mark_age(lake: SourceLake, cut: Cut) -> None:
    """Leave a mark of the newest cut. Call it under the lease: the marks are read and replaced."""
    before = read_ages(lake)
    after = before.with_mark(Mark(cut.created_at, cut.ordinals.whole))
    if after != before:
        lake.store.put(lake.paths.ages, after.to_bytes())


def in_lake_at(lake: SourceLake, time: datetime) -> int:
    """Return an ordinal below which all rows were in the lake at `time`, 0 if none is known. Reads O(log n) cuts."""
    numbers = cut_numbers(lake)
    index = bisect_right(numbers, time, key=lambda number: time_of(read_cut(lake, number).created_at))
    if index:
        return read_cut(lake, numbers[index - 1]).ordinals.whole
    return max((mark.ordinal for mark in read_ages(lake).marks if time_of(mark.time) <= time), default=0)
