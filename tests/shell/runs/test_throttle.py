"""Reports of a table: at its first change, then at most once an interval, and at once if it is urgent."""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import attrgetter

import pytest

from assets.changes import ChangeSummary, changed
from assets.support.pace import EVENTS_PER_S, EventBudget, Throttle
from lakeproof.drain.counts import Flush, LandedCounts
from lakeproof.lsn import Lsn
from lakeproof.names import Oid, TableName
from lakeproof.schema import Identity, SchemaVersion

A, B = TableName("s", "a"), TableName("s", "b")


def _flush(start: int, tables: dict[TableName, LandedCounts], altered: tuple[TableName, ...] = ()) -> Flush:
    return Flush(
        number=start,
        start_lsn=Lsn(start),
        end_lsn=Lsn(start + 10),
        transactions=1 if tables else 0,
        rows=sum(counts.changes for counts in tables.values()),
        tables=tables,
        first_commit_us=start * 1000 if tables else None,
        last_commit_us=start * 1000 + 500 if tables else None,
        schemas=tuple(SchemaVersion(table, Oid(1), Identity.DEFAULT, (), ()) for table in altered),
        seconds=0.01,
    )


class _Throttle(Throttle[TableName, ChangeSummary]):
    """That of a drain, by a clock."""

    def __init__(
        self, every_s: float, clock: Callable[[], float] = time.time, budget: EventBudget | None = None
    ) -> None:
        super().__init__(every_s, ChangeSummary.followed_by, attrgetter("urgent"), budget=budget)
        self._clock = clock

    def flushed(self, flush: Flush) -> None:
        """Add what a flush has brought."""
        self.add(changed(flush, self._clock))


def test_a_tables_first_change_is_due_at_once() -> None:
    """A person who starts a drain sees within a second that it works."""
    throttle = _Throttle(60)
    throttle.flushed(_flush(0, {A: LandedCounts(inserts=1)}))
    assert throttle.take_due(0.0).keys() == {A}


def test_afterwards_a_table_is_due_once_an_interval_with_the_sum() -> None:
    """Counts add up over the flushes in between, and the range has no hole."""
    throttle = _Throttle(60, lambda: 0.0)
    throttle.flushed(_flush(0, {A: LandedCounts(inserts=1)}))
    throttle.take_due(0.0)
    throttle.flushed(_flush(10, {A: LandedCounts(inserts=2, bytes=5)}))
    throttle.flushed(_flush(20, {A: LandedCounts(updates=3, deletes=1, bytes=7)}))
    assert throttle.take_due(59.9) == {}
    assert throttle.take_due(60.0) == {
        A: ChangeSummary(
            Lsn(10),
            Lsn(30),
            LandedCounts(2, 3, 1, 0, bytes=12),
            2,
            first_commit_us=10_000,
            last_commit_us=20_500,
            lag_s=0.0,
            lag_s_max=0.0,
        )
    }
    assert throttle.take_due(1000.0) == {}


def test_tables_are_due_each_by_its_own_clock_and_only_if_changed() -> None:
    """A quiet table costs nothing."""
    throttle = _Throttle(60)
    throttle.flushed(_flush(0, {A: LandedCounts(inserts=1)}))
    throttle.take_due(0.0)
    throttle.flushed(_flush(10, {B: LandedCounts(inserts=1)}))
    assert throttle.take_due(30.0).keys() == {B}
    throttle.flushed(_flush(20, {A: LandedCounts(inserts=1), B: LandedCounts(inserts=1)}))
    assert throttle.take_due(60.0).keys() == {A}
    assert throttle.take_due(90.0).keys() == {B}


def test_a_truncate_and_a_new_schema_are_due_at_once() -> None:
    """News that a person would want is not kept back for a minute."""
    throttle = _Throttle(60)
    throttle.flushed(_flush(0, {A: LandedCounts(inserts=1), B: LandedCounts(inserts=1)}))
    throttle.take_due(0.0)
    throttle.flushed(_flush(10, {A: LandedCounts(truncates=1)}))
    assert throttle.take_due(1.0).keys() == {A}
    throttle.flushed(_flush(20, {B: LandedCounts(inserts=1)}, altered=(B,)))
    assert throttle.take_due(2.0).keys() == {B}


def test_an_urgent_change_stays_urgent_when_an_ordinary_one_follows() -> None:
    """One event has both changes."""
    throttle = _Throttle(60)
    throttle.flushed(_flush(0, {A: LandedCounts(inserts=1)}))
    throttle.take_due(0.0)
    throttle.flushed(_flush(10, {A: LandedCounts(truncates=1)}))
    throttle.flushed(_flush(20, {A: LandedCounts(inserts=4)}))
    assert throttle.take_due(1.0)[A].counts == LandedCounts(inserts=4, truncates=1)


def test_a_flush_without_changes_is_nothing_to_tell() -> None:
    """An idle source writes no events."""
    throttle = _Throttle(60)
    throttle.flushed(_flush(0, {}))
    assert throttle.take_due(0.0) == {}
    assert throttle.take_all(0.0) == {}


def test_at_the_end_all_that_is_left_is_reported() -> None:
    """The last range of a run is not lost."""
    throttle = _Throttle(60)
    throttle.flushed(_flush(0, {A: LandedCounts(inserts=1)}))
    throttle.take_due(0.0)
    throttle.flushed(_flush(10, {A: LandedCounts(inserts=1)}))
    assert throttle.take_all(1.0).keys() == {A}
    assert throttle.take_all(1.0) == {}


def test_the_lag_is_measured_when_a_flush_is_durable_and_not_when_it_is_reported() -> None:
    """The lag runs from the newest commit to the flush; the summary has the newest and the greatest."""
    now = 100.0
    throttle = _Throttle(60, lambda: now)
    throttle.flushed(_flush(99_000, {A: LandedCounts(inserts=1)}))
    throttle.flushed(_flush(99_990, {A: LandedCounts(inserts=1)}))
    now = 160.0
    summary = throttle.take_due(0.0)[A]
    assert (summary.lag_s, summary.lag_s_max) == pytest.approx((0.0095, 0.9995))


@pytest.mark.full
def test_a_run_has_each_of_many_tables_once_then_one_event_a_second() -> None:
    """200 tables that change all the time cost no more events than four; none is forgotten, and no change is lost."""
    tables = [TableName("s", f"t{n:03}") for n in range(200)]
    throttle = _Throttle(60, lambda: 0.0, EventBudget(len(tables), 0.0))
    events: list[tuple[float, TableName, int]] = []
    for second in range(3600):
        throttle.flushed(_flush(10 * second, {table: LandedCounts(inserts=1) for table in tables}))
        taken = throttle.take_due(float(second))
        events += [(float(second), table, summary.counts.inserts) for table, summary in taken.items()]
    assert [len([e for e in events if e[0] == s]) for s in (0.0, 1.0, 2.0)] == [200, 0, 0]
    # The first minute has no table that is due again; its budget is there for the second one.
    assert len(events) <= 200 + 3600 * EVENTS_PER_S
    assert max(len([e for e in events if s <= e[0] < s + 600]) for s in range(0, 3600, 600)) <= 200 + 600 * EVENTS_PER_S
    per_table = [len([e for e in events if e[1] == table]) for table in tables]
    assert min(per_table) >= max(per_table) - 1
    events += [(3600.0, table, summary.counts.inserts) for table, summary in throttle.take_all(3600.0).items()]
    assert all(sum(e[2] for e in events if e[1] == table) == 3600 for table in tables[::50])


def test_an_urgent_event_comes_whatever_the_others_cost() -> None:
    """A truncate is seen at once; what it costs is saved on the others."""
    throttle = _Throttle(0, lambda: 0.0, EventBudget(1, 0.0))
    throttle.flushed(_flush(0, {A: LandedCounts(inserts=1), B: LandedCounts(inserts=1)}))
    assert throttle.take_due(0.0).keys() == {A}
    throttle.flushed(_flush(10, {B: LandedCounts(truncates=1)}))
    assert throttle.take_due(0.0).keys() == {B}
    throttle.flushed(_flush(20, {A: LandedCounts(inserts=1)}))
    assert throttle.take_due(1.0) == {}
    assert throttle.take_due(2.0).keys() == {A}
