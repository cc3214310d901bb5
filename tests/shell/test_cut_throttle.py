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
    throttle = CutThrottle(60, {}, EventBudget(EVENTS * len(MANY), 0.0))
    events: list[tuple[float, TableName, TableTotals]] = []
    for second in range(3600):
        throttle.add("shop", [_cut(second + 1, MANY)], frozenset(MANY))
        now_s = float(second)
        if throttle.is_due("shop", now_s):
            events += [(now_s, *each) for each in throttle.take_due("shop", now_s).tables.items()]
    assert EVENTS * len([e for e in events if e[0] < 60]) == EVENTS * len(MANY)
    assert EVENTS * len(events) <= EVENTS * len(MANY) + 3600 * EVENTS_PER_S
    rest = throttle.take_all("shop", 3600.0)
    assert rest.through == 3600
    events += [(3600.0, *each) for each in rest.tables.items()]
    for table in MANY[::40]:
        reported = [done for _, of, done in events if of == table]
        assert [done.first_cut for done in reported] == [1, *(done.last_cut + 1 for done in reported[:-1])]
        assert (reported[-1].last_cut, sum(done.changes for done in reported)) == (3600, 3600)


def test_a_few_tables_have_theirs_every_minute() -> None:
    """The bound is for many; a schema change comes at once, and a table that Dagster does not show waits for nothing."""
    throttle = CutThrottle(60, {"shop": 6}, EventBudget(EVENTS * 2, 0.0))
    counts = []
    for second in range(0, 600, 5):
        throttle.add("shop", [_cut(second // 5 + 7, [A, B, MANY[9]])], frozenset({A, B}))
        counts.append(len(throttle.take_due("shop", float(second)).tables))
    assert sum(counts) == 20
    throttle.add("shop", [_cut(127, [], altered=(A,))], frozenset({A, B}))
    taken = throttle.take_due("shop", 596.0)
    assert [*taken.tables] == [A]
    assert taken.through == 127
    assert not throttle.is_waiting("shop", MANY[9])


def test_what_could_not_be_written_waits_again_before_what_came_since() -> None:
    """Its sum has both, from the first cut on."""
    throttle = CutThrottle(0, {})
    throttle.add("shop", [_cut(1, [A])], frozenset({A}))
    taken = throttle.take_due("shop", 0.0)
    throttle.add("shop", [_cut(2, [A])], frozenset({A}))
    throttle.put_back("shop", taken)
    done = throttle.take_all("shop", 1.0).tables[A]
    assert (done.first_cut, done.last_cut, done.changes, done.cycles) == (1, 2, 2, 2)
