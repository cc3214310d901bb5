"""Progress of a piece of work: tables, rows and time left, of a part of it too; reports of large transactions."""

from __future__ import annotations

import pytest

from lakeproof.drain.progress import LARGE_BYTES, LargeProgress
from lakeproof.events import Event
from lakeproof.progress import Progress, Share, Work


def test_a_part_of_a_work_counts_as_its_share() -> None:
    """Half of the second half is three quarters; the time left follows from the time since the whole began."""
    events, now = list[Event](), [100.0]
    share = Share(units=2.0, before=2.0, whole=4.0, seconds_before=60.0)
    progress = Progress(events.append, Work("x.progress", "cycle 2", 2), share, clock=lambda: now[0])
    progress.begin()
    now[0] = 130.0
    progress.done(1_200)
    assert [event.fields["fraction"] for event in events] == [0.5, 0.75]
    assert [event.fields["seconds_left"] for event in events] == [60.0, 30.0]
    assert events[-1].message == "cycle 2: 1 of 2 tables, 1,200 rows, about 30 s left"


def test_a_bar_does_not_go_back_if_more_comes_than_was_known() -> None:
    """A cycle that a schema calls for is not known beforehand."""
    events = list[Event]()
    share = Share(units=3.0, before=3.0, whole=6.0, least=0.9)
    progress = Progress(events.append, Work("x.progress", "cycle 2", 1), share)
    progress.begin()
    progress.done(1)
    assert [event.fields["fraction"] for event in events] == [0.9, 1.0]


def test_no_time_is_estimated_of_what_has_hardly_begun_or_is_over() -> None:
    """For three minutes 81,136 s were shown, and 0 s for a minute."""
    events, now = list[Event](), [0.0]
    share = Share(units=1.0, before=1.0, whole=100.0, seconds_before=60.0)
    progress = Progress(events.append, Work("x.progress", "cycle 2", 1), share, clock=lambda: now[0])
    progress.begin()
    progress.done(7)
    Progress(events.append, Work("x.progress", "cycle 3", 0), clock=lambda: now[0]).begin()
    assert [event.fields["seconds_left"] for event in events] == [None, None, None]
    assert not any("left" in event.message for event in events)


def test_a_work_without_tables_is_done() -> None:
    """A cycle without changes has no tables, and counts as done."""
    events = list[Event]()
    Progress(events.append, Work("x.progress", "cycle", 0)).begin()
    assert events[0].fields["fraction"] == 1.0


@pytest.mark.parametrize("size", [0, LARGE_BYTES - 1])
def test_small_transactions_are_not_reported(size: int) -> None:
    """Small transactions end before the first report is due."""
    events = list[Event]()
    LargeProgress(events.append, "shop").report(size, (0, size) if size else None)
    assert events == []


def test_a_large_transaction_is_reported_once_a_second() -> None:
    """While it comes by its bytes, while it is decoded with the time left."""
    events, now = list[Event](), [0.0]
    large = LargeProgress(events.append, "shop", lambda: now[0])
    assert not large.is_due
    now[0] = 1.0
    assert large.is_due
    large.report(2 * LARGE_BYTES, None)
    assert not large.is_due
    size = 4 * LARGE_BYTES
    for second, part in ((2.0, 0), (6.0, size // 2)):
        now[0] = second
        large.report(0, (part, size))
    assert [event.fields.get("fraction") for event in events] == [None, 0.0, 0.5]
    assert events[0].message == "33.6 MB of transactions that have not ended were received"
    assert events[-1].message == "a transaction of 67.1 MB: 33.6 MB decoded, about 4 s left"


def test_no_time_left_is_shown_of_a_large_transaction_before_there_is_a_rate() -> None:
    """At its first report no time has passed, and then nothing may be decoded for a while."""
    events, now = list[Event](), [0.0]
    large = LargeProgress(events.append, "shop", lambda: now[0])
    for second, part in ((1.0, 0), (2.0, 0), (3.0, 1)):
        now[0] = second
        large.report(0, (part, 4 * LARGE_BYTES))
    large = LargeProgress(events.append, "shop", lambda: now[0])
    large.report(0, (2 * LARGE_BYTES, 4 * LARGE_BYTES))
    assert [" left" in event.message for event in events] == [False, False, True, False]
