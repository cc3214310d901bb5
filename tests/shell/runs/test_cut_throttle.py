"""The events of a compaction that goes on: each table once, then one event a second, whatever the number of tables."""

from __future__ import annotations

import logging
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

from assets import current
from assets.cycles import EVENTS, TableTotals, totals
from assets.support.pace import EVENTS_PER_S, EventBudget, Throttle
from lakeproof.cli.results import to_json
from lakeproof.config.load import load
from lakeproof.errors import TransientError
from lakeproof.events import FOLLOWED_CUTS, Event
from lakeproof.lake.cycle.runner import CutReport, TableCut
from lakeproof.lake.records.documents import NOBODY, Cut
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, TableName
from resources import Settings
from tests.support.shell.sample import write_sample

MANY = [TableName("s", f"t{n:03}") for n in range(200)]
A, B = MANY[:2]
_WRITTEN = TableCut(changes=1, inserted=1, deleted=0, history_version=1, current_version=1, written_by=NOBODY)


def _cut(number: int, tables: list[TableName], altered: tuple[TableName, ...] = ()) -> CutReport:
    return CutReport(
        CycleNumber(number),
        Lsn(number),
        dict.fromkeys(tables, _WRITTEN),
        {},
        Incarnation(1),
        dict.fromkeys(altered, "a column"),
    )


def _throttle(tables: int) -> Throttle[TableName, TableTotals]:
    budget = EventBudget(EVENTS * tables, 0.0)
    return Throttle(60, TableTotals.followed_by, attrgetter("schema_changes"), budget=budget, events=EVENTS)


def test_an_hour_of_many_tables_has_a_bounded_number_of_events() -> None:
    """200 tables that are in every cut, a cut a second: no cut is missing in the end, and none is there twice."""
    throttle = _throttle(len(MANY))
    events: list[tuple[float, TableName, TableTotals]] = []
    for second in range(3600):
        throttle.add(totals([_cut(second + 1, MANY)]))
        now_s = float(second)
        events += [(now_s, *each) for each in throttle.take_due(now_s).items()]
    assert EVENTS * len([e for e in events if e[0] < 60]) == EVENTS * len(MANY)
    assert EVENTS * len(events) <= EVENTS * len(MANY) + 3600 * EVENTS_PER_S
    rest = throttle.take_all(3600.0)
    events += [(3600.0, *each) for each in rest.items()]
    for table in MANY[::40]:
        reported = [done for _, of, done in events if of == table]
        assert sum(done.changes for done in reported) == sum(done.cycles for done in reported) == 3600


def test_a_few_tables_have_theirs_every_minute() -> None:
    """The bound is for many; a schema change comes at once."""
    throttle = _throttle(2)
    counts = []
    for second in range(0, 600, 5):
        throttle.add(totals([_cut(second // 5 + 7, [A, B])]))
        counts.append(len(throttle.take_due(float(second))))
    assert sum(counts) == 20
    throttle.add(totals([_cut(127, [], altered=(A,))]))
    taken = throttle.take_due(596.0)
    assert [*taken] == [A]


def test_what_a_cycle_did_is_reported_later_if_the_lake_cannot_be_read_now(tmp_path: Path) -> None:
    """A lake on a network may be away for a moment: the next event has the changes of both."""
    config = load(write_sample(tmp_path))
    (unit,) = [unit for unit in current.compaction_units(config) if unit.name == "crm"]
    (table,) = unit.sources[0].tables
    settings, lines = _Unreadable(config_path=str(config.path)), logging.getLogger("test")
    reporter = current._Reporter(SimpleNamespace(log=lines), settings, unit, every_s=60)  # type: ignore[arg-type]  # it logs
    reporter.hear(Event(FOLLOWED_CUTS, "", {"cuts": to_json({"crm": [_cut(1, [table])]})}))
    reporter.write_due()
    assert reporter._cuts.take_all(0) == {("crm", table): totals([_cut(1, [table])])[table]}


class _Unreadable(Settings):
    def newest_cut(self, source: str) -> Cut | None:  # noqa: ARG002  (it answers for every source)
        raise TransientError("the lake", "it is away", "wait")
