"""A drain's pulse: how far it says to be behind, by a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakeproof.drain.counts import Flush, LandedCounts
from lakeproof.drain.progress import RATES_INTERVAL_S, Rates
from lakeproof.drain.pulse import MARKS_MAX, Pulse
from lakeproof.events import Event
from lakeproof.lsn import Lsn
from lakeproof.names import TableName

_NOTHING = Flush(1, Lsn(0), Lsn(0), 0, 0, {}, None, None, (), 0.0)


@dataclass
class Clock:
    """A time that stands until it is moved."""

    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


def _landed(end: int, committed_s: float | None = None) -> Flush:
    us = None if committed_s is None else int(committed_s * 1e6)
    return replace(_NOTHING, end_lsn=Lsn(end), first_commit_us=us, last_commit_us=us)


def _pulse(clock: Clock) -> Pulse:
    pulse = Pulse(clock, clock)
    pulse.connect(Lsn(100))
    return pulse


def test_what_waits_is_as_far_behind_as_it_has_waited() -> None:
    """From the moment at which the oldest of it came, and zero once all of it is durable."""
    clock = Clock()
    pulse = _pulse(clock)
    assert (pulse.lag_s, pulse.lag_bytes, pulse.changes, pulse.transactions) == (0, 0, 0, 0)
    pulse.beat(Lsn(200), Lsn(200))
    clock.now += 3
    pulse.beat(Lsn(300), Lsn(300))
    clock.now += 2
    assert (pulse.lag_s, pulse.lag_bytes) == (5, 200)
    pulse.landed(_landed(200))
    assert (pulse.lag_s, pulse.lag_bytes) == (2, 100)
    pulse.landed(_landed(300))
    assert (pulse.lag_s, pulse.lag_bytes) == (0, 0)


def test_log_without_a_change_for_us_does_not_wait() -> None:
    """The landing passes it at intervals: it is bytes, but no seconds."""
    clock = Clock()
    pulse = _pulse(clock)
    pulse.beat(Lsn(900), Lsn(100))
    clock.now += 8
    assert (pulse.lag_s, pulse.lag_bytes) == (0, 800)


def test_a_commit_of_hours_ago_counts_by_its_own_time() -> None:
    """After a pause the server sends what is old: what is not here yet can't be younger."""
    clock = Clock()
    pulse = _pulse(clock)
    pulse.beat(Lsn(200), Lsn(200))
    pulse.landed(_landed(200, clock.now - 3600))
    assert pulse.lag_s == 3600
    # Log without a change for us has passed since: everything has landed.
    pulse.landed(_landed(300))
    assert pulse.lag_s == 0


def test_a_lost_connection_counts_from_its_end() -> None:
    """Nobody knows what the server commits meanwhile."""
    clock = Clock()
    pulse = _pulse(clock)
    clock.now += 5
    pulse.disconnect()
    clock.now += 7
    assert (pulse.is_connected, pulse.lag_s) == (False, 7)
    pulse.connect(Lsn(100))
    assert pulse.lag_s == 0


def test_log_without_a_row_is_in_the_newest_cut_with_the_rows_before_it() -> None:
    """A cut is made for rows alone: what the landing passes after it is replayed all the same."""
    pulse = _pulse(Clock())
    pulse.applied = Lsn(90)
    assert pulse.replayed == Lsn(90), "there may be rows between the cut and what had landed"
    pulse.landed(replace(_landed(200), rows=1))
    pulse.landed(_landed(300))
    pulse.applied = Lsn(150)
    assert pulse.replayed == Lsn(150)
    pulse.applied = Lsn(200)
    assert pulse.replayed == Lsn(300)
    pulse.applied = None
    assert pulse.replayed is None


def test_positions_that_are_remembered_are_bounded() -> None:
    """A disk that hangs for hours costs no memory, and the oldest wait is kept."""
    clock = Clock()
    pulse = _pulse(clock)
    for number in range(MARKS_MAX + 500):
        pulse.beat(Lsn(200 + number), Lsn(200 + number))
        clock.now += 0.5
    assert len(pulse._marks) == MARKS_MAX
    assert pulse.lag_s == (MARKS_MAX + 500) * 0.5
    pulse.landed(_landed(200 + MARKS_MAX + 500))
    assert pulse.lag_s == 0


def test_rates_are_those_since_the_last_report() -> None:
    """One event every fifteen seconds, however often the loop asks."""
    clock, events = Clock(), list[Event]()
    pulse = _pulse(clock)
    rates = Rates(events.append, "shop", pulse, clock)
    for _ in range(3):
        pulse.received_bytes += 30_000_000
        tables = {TableName("shop", "orders"): LandedCounts(inserts=1500, befores=7)}
        pulse.landed(replace(_landed(200, clock.now), transactions=150, tables=tables))
        clock.now += RATES_INTERVAL_S / 2
        rates.report_if_due()
        rates.report_if_due()
    (event,) = events
    assert event.kind == "drain.rates"
    assert {key: event.fields[key] for key in ("changes_per_s", "mb_per_s", "transactions_per_s", "lag_bytes")} == {
        "changes_per_s": 200.0,
        "mb_per_s": 4.0,
        "transactions_per_s": 20.0,
        "lag_bytes": 0,
    }
