"""Reports each cut to Dagster exactly once, for every table in it, whoever made the cut.

Sums of cycles do not belong here (`cycle_totals.py`), nor what an event says of them (`cycle_metadata.py`).

An event says up to which cut it reports (`cut`), and a run reports what comes after the newest event. So what a killed run
has not reported, and the cuts of a proof, of maintenance or of a command, are in the events of the next compaction. Runs
write theirs in turn, under a lock (docs/decisions/0044-dagsters-half-for-others.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import dagster as dg

from assets.cycle_metadata import WrittenLayer, written
from assets.cycle_totals import TableTotals, totals
from assets.support.keys import Layer, table_key
from lakeproof.errors import LakeproofError, TransientError
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.store import newest_cut, newest_number, read_cut
from lakeproof.names import CycleNumber, TableName
from lakeproof.state.landed_since import changed_between, changes_since
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake
from resources import Settings

if TYPE_CHECKING:
    from lakeproof.lake.cycle.runner import CutReport

_LAYERS = (Layer.HISTORY, Layer.CURRENT)
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Unreported:
    """The tables with cycles that no event has, up to the cut `through` (0: there is none)."""

    through: CycleNumber
    tables: Mapping[TableName, TableTotals] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _LastEvent:
    cut: int
    version: int | None
    rows: int | None


class CycleEvents:
    """The events of one source's tables, as one run sees and writes them."""

    def __init__(
        self, instance: dg.DagsterInstance, settings: Settings, source: str, tables: Sequence[TableName]
    ) -> None:
        self._instance = instance
        self._settings = settings
        self._source = source
        self._tables = tables

    @property
    def _lake(self) -> SourceLake:
        return self._settings.lake_of(self._source)

    def unreported(self) -> Unreported:
        """Return what no event has of the cycles up to the newest cut; call it before the run's own cycles."""
        cut = newest_cut(self._lake)
        if cut is None:
            return Unreported(CycleNumber(0))
        reported = self._last_events(self._tables, int(cut.number))
        since: dict[TableName, CycleNumber] = {}
        for table in self._tables:
            state = cut.tables.get(table)
            if state is None:
                continue
            for layer, version in zip(_LAYERS, (state.history_version, state.current_version), strict=True):
                last = reported.get(table_key(layer, self._source, table))
                if last is None:
                    since[table] = CycleNumber(0)
                elif last.cut < cut.number and last.version != version:
                    since[table] = CycleNumber(min(last.cut, since.get(table, last.cut)))
        return Unreported(cut.number, self._others(since, cut))

    def after_run(self, before: Unreported, ended: Sequence[CutReport]) -> Unreported:
        """Return what no event has at the end of a run: what there was before it, its own cycles, and others' meanwhile."""
        tables, through = dict(before.tables), int(before.through)

        def add(more: Mapping[TableName, TableTotals]) -> None:
            for table, later in more.items():
                tables[table] = tables[table].followed_by(later) if table in tables else later

        if ended:
            if ended[0].number > through + 1:
                add(self.between(through, int(ended[0].number) - 1))
            changed = {table for cut in ended for table in (*cut.tables, *cut.schema_changes)}
            add({table: done for table in changed if (done := totals(ended, table)) is not None})
            through = int(ended[-1].number)
        lake = self._lake
        newest = int(newest_number(lake.store, lake.paths.cuts))
        if newest > through:
            add(self.between(through, newest))
        return Unreported(CycleNumber(newest), tables)

    def between(self, after: int, last: int) -> dict[TableName, TableTotals]:
        """Return what others have done in the cuts after `after` and up to `last`; nothing if that is not known."""
        try:
            cut = read_cut(self._lake, CycleNumber(last))
            changed = changed_between(self._lake, CycleNumber(after), cut)
        except LakeproofError:
            return {}
        return self._others({table: CycleNumber(after) for table in changed if table in self._tables}, cut)

    def events(
        self, done: Mapping[TableName, TableTotals], through: CycleNumber, *, always: bool = False
    ) -> Iterator[WrittenLayer]:
        """Yield history and current of tables at the cut `through`, after what was done; call it in a `turn`.

        What another run has reported meanwhile is left out; with `always` the layer comes nevertheless, as it is.
        """
        if not done or not through:
            return
        lake = self._lake
        cut, descriptions = read_cut(lake, through), self._settings.descriptions(self._source)
        reported = self._last_events(list(done), int(newest_number(lake.store, lake.paths.cuts)))
        for table, each in done.items():
            for layer in _LAYERS:
                key = table_key(layer, self._source, table)
                new = self._unreported_part(table, each, reported.get(key), cut)
                if new is not None or always:
                    new = new or TableTotals()
                    if layer is Layer.CURRENT:
                        new = replace(new, rows=self._rows(table, new, reported.get(key), cut))
                    layers = written(self._source, table, cut, new, descriptions.get(table))
                    yield from (w for w in layers if w.key == key)

    @contextmanager
    def turn(self, wait_s: float, is_over: Callable[[], bool] = lambda: False) -> Iterator[bool]:
        """Hold the lock under which events of the source's cuts are written; False if another run has it for so long."""
        until_s = time.monotonic() + wait_s
        with ExitStack() as held:
            lake = self._lake
            while True:
                try:
                    held.enter_context(
                        lake.store.lock(lake.paths.events_lock, f"{self._source}: events", "another run writes some")
                    )
                except TransientError:
                    if time.monotonic() >= until_s or is_over():
                        break
                    time.sleep(_LOOK_S)
                else:
                    yield True
                    return
        yield False

    def _rows(self, table: TableName, done: TableTotals, last: _LastEvent | None, cut: Cut) -> int | None:
        """Return the rows of current: as a cycle counted them, else from the newest event, else as Delta's log has them."""
        if done.cycles and done.rows is not None and not done.others:
            return done.rows
        if last is not None and last.rows is not None and not done.others:
            return last.rows + done.inserted - done.deleted
        from lakeproof.lake.delta.files import rows_at

        state = cut.tables.get(table)
        try:
            path = self._lake.url(LakePaths(self._source).current(table))
            return None if state is None else rows_at(path, state.current_version)
        except (LakeproofError, OSError):
            return None

    def _last_events(self, tables: Sequence[TableName], newest: int) -> dict[dg.AssetKey, _LastEvent]:
        """Return what the newest event of each layer says; an event of a cut that is not there is of another lake."""
        keys = [table_key(layer, self._source, table) for layer in _LAYERS for table in tables]
        reported: dict[dg.AssetKey, _LastEvent] = {}
        for record in self._instance.get_asset_records(keys):
            entry = record.asset_entry.last_materialization
            event = None if entry is None else entry.asset_materialization
            cut = None if event is None else _number(event, "cut")
            if event is not None and cut is not None and cut <= newest:
                reported[event.asset_key] = _LastEvent(
                    cut, _number(event, "delta_version"), _number(event, "dagster/row_count")
                )
        return reported

    def _unreported_part(
        self, table: TableName, done: TableTotals, last: _LastEvent | None, cut: Cut
    ) -> TableTotals | None:
        """Return what the newest event does not have of what was done; None if it has all of it."""
        if last is None:
            return done
        if last.cut > cut.number or 0 < done.last_cut <= last.cut:
            return None
        if 0 < done.first_cut <= last.cut:
            # Another run has reported a part of it, with its own.
            return self._others({table: CycleNumber(last.cut)}, cut).get(table)
        return done

    def _others(self, since: Mapping[TableName, CycleNumber], cut: Cut) -> dict[TableName, TableTotals]:
        """Return what was done after the cut that `since` names, up to `cut`, by those whose reports are not here."""
        if not since:
            return {}
        changes = changes_since(self._lake, since, cut)
        return {
            table: TableTotals(
                changes=changes.get(table, 0),
                first_cut=int(after) + 1,
                last_cut=int(cut.number),
                others=True,
                uncounted=table not in changes,
            )
            for table, after in since.items()
        }


def _number(event: dg.AssetMaterialization, name: str) -> int | None:
    value = event.metadata.get(name)
    number = None if value is None else value.value
    return number if isinstance(number, int) else None
