"""The events of a compaction that goes on: each table once, then one event a second, whatever the number of tables."""

from __future__ import annotations

from assets.cycle_totals import EVENTS, CutThrottle, TableTotals
from assets.support.event_budget import EVENTS_PER_S, EventBudget
from lakeproof.lake.cycle.runner import CutReport, TableCut
from lakeproof.lake.records.documents import NOBODY
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, TableName

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


def test_an_hour_of_many_tables_has_a_bounded_number_of_events() -> None:
    """200 tables that are in every cut, a cut a second: no cut is missing in the end, and none is there twice."""
    throttle = CutThrottle(60, EventBudget(EVENTS * len(MANY), 0.0))
    events: list[tuple[float, TableName, TableTotals]] = []
    for second in range(3600):
        throttle.add("shop", [_cut(second + 1, MANY)], frozenset(MANY))
        now_s = float(second)
        if throttle.is_due("shop", now_s):
            events += [(now_s, *each) for each in throttle.take_due("shop", now_s).items()]
    assert EVENTS * len([e for e in events if e[0] < 60]) == EVENTS * len(MANY)
    assert EVENTS * len(events) <= EVENTS * len(MANY) + 3600 * EVENTS_PER_S
    rest = throttle.take_all("shop", 3600.0)
    events += [(3600.0, *each) for each in rest.items()]
    for table in MANY[::40]:
        reported = [done for _, of, done in events if of == table]
        assert sum(done.changes for done in reported) == sum(done.cycles for done in reported) == 3600


def test_a_few_tables_have_theirs_every_minute() -> None:
    """The bound is for many; a schema change comes at once, and a table that Dagster does not show waits for nothing."""
    throttle = CutThrottle(60, EventBudget(EVENTS * 2, 0.0))
    counts = []
    for second in range(0, 600, 5):
        throttle.add("shop", [_cut(second // 5 + 7, [A, B, MANY[9]])], frozenset({A, B}))
        counts.append(len(throttle.take_due("shop", float(second))))
    assert sum(counts) == 20
    throttle.add("shop", [_cut(127, [], altered=(A,))], frozenset({A, B}))
    taken = throttle.take_due("shop", 596.0)
    assert [*taken] == [A]
    assert not throttle.is_waiting("shop", MANY[9])
