"""The shortfall of a lake against its source: one value for `status`, metrics, Dagster and alerts. Showing it is theirs.

Held tables are in each cut, and problems in what could not be read; this is what no document names.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import TypeVar

from lakeproof.config.model import Config
from lakeproof.config.table_names import table_text
from lakeproof.config.view_graph import readers_of
from lakeproof.errors import LakeproofError
from lakeproof.events import counted, listed
from lakeproof.names import TableName
from lakeproof.state.absent import Absence, AbsentTable, absence
from lakeproof.state.compared import differing_tables, never_compared, widened_tables
from lakeproof.state.due import missing_days
from lakeproof.state.problem import Problem
from lakeproof.state.source_state import SourceState
from lakeproof.storage.open import open_store
from lakeproof.views.drift import newest_foreign_write

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The published tables that are in no lake, and what is wrong with what is there.

    `entering` come with the next compaction. `unproved` were never compared with the source, `differing` differed when they
    were, and of `widened` these columns were widened since, perhaps with other values. `days` that `daily` asks for are
    missing. `views` that read the source were written by somebody else since. What could not be read is empty, and `unread`
    has its name here with the reason.
    """

    absent: Mapping[TableName, AbsentTable] = field(default_factory=dict)
    entering: tuple[TableName, ...] = ()
    unproved: tuple[TableName, ...] = ()
    differing: Mapping[TableName, str] = field(default_factory=dict)
    widened: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    days: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    views: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, Problem] = field(default_factory=dict)

    @property
    def waited_for(self) -> dict[TableName, AbsentTable]:
        """Return the absent tables without those that the configuration leaves out."""
        return {table: why for table, why in self.absent.items() if not why.is_excluded}

    def __bool__(self) -> bool:
        return any(self.counts.values())

    @property
    def counts(self) -> dict[str, int]:
        """Return how much is lacking of each kind, by the names that metrics and Dagster have, without what is `unread`."""
        numbers = {
            "absent_tables": ("absent", len(self.waited_for)),
            "unproved_tables": ("compared", len(self.unproved) + len(self.widened)),
            "differing_tables": ("compared", len(self.differing)),
            "missing_days": ("days", sum(map(len, self.days.values()))),
            "overwritten_views": ("views", len(self.views)),
        }
        return {name: number for name, (part, number) in numbers.items() if part not in self.unread}

    def sentences(self, source: str) -> Iterator[str]:
        """Yield a sentence for each absent table, and one for each other kind of shortfall."""
        yield from (f"{table}: {why}" for table, why in self.absent.items())
        if self.unproved:
            yield f"never compared with the source: {listed(self.unproved)}; run `lakeproof prove {source}`"
        if self.differing:
            yield f"differed when last compared: {listed(self.differing)}; run `lakeproof prove {source} --repair`"
        for table, columns in self.widened.items():
            reason = f"{listed(columns)} got a wider type since it was compared, and with USING perhaps other values"
            yield f"{table}: {reason}; run `lakeproof prove {source} --tables {shlex.quote(table_text(table))} --repair`"
        for table, days in self.days.items():
            command = f"lakeproof daily {source} --days {days[0]}..{days[-1]}"
            yield f"{table}: {counted(len(days), 'day is', 'days are')} missing: {listed(days)}; run `{command}`"
        for view, reason in self.views.items():
            yield f"view {view}: {reason}; run `lakeproof refresh {view}`, which puts its rows right"


def shortfall(config: Config, state: SourceState, now: datetime | None = None) -> Shortfall:
    """Return what the lake lacks of a source; damage of one document hides no other part."""
    unread = dict[str, Problem]()

    def part(name: str, read: Callable[[], _T], otherwise: _T) -> _T:
        try:
            return read()
        except LakeproofError as error:
            unread[name] = Problem.of(error)
            return otherwise

    missing = part("absent", partial(absence, state), Absence())
    until = datetime.now(timezone.utc) if now is None else now
    return Shortfall(
        absent=missing.tables,
        entering=missing.entering,
        unproved=part("compared", partial(never_compared, state), ()),
        differing=part("compared", partial(differing_tables, state), {}),
        widened=part("compared", partial(widened_tables, state), {}),
        days=part("days", partial(missing_days, state, until), {}),
        views=part("views", partial(overwritten_views, config, state.source.name), {}),
        unread=unread,
    )


def overwritten_views(config: Config, source: str) -> dict[str, str]:
    """Return the views that read a source and whose tables somebody else has written since their cuts."""
    store = open_store(config.location)
    written = {view.name: newest_foreign_write(store, view.name) for view in readers_of(config.views, [source])}
    return {view: reason for view, reason in written.items() if reason is not None}
