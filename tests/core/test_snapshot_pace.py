"""The limit on what a snapshot reads: bytes over time, with a clock that only sleeping moves."""

from __future__ import annotations

from lakeproof.snapshot.rate_limit import Pace


class _Clock:
    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


def test_no_more_than_the_limit_on_average() -> None:
    """Whatever the sizes; and time in which nothing was read is not saved up."""
    clock = _Clock()
    pace = Pace(1000, clock, clock.sleep)
    for size in (500, 10, 3000, 1490):
        pace.take(size, lambda: False)
    assert abs(clock.at - 5.0) < 1e-6
    clock.at = 100.0
    pace.take(2000, lambda: False)
    assert abs(clock.at - 102.0) < 1e-6


def test_a_limit_of_0_is_none() -> None:
    """Nobody waits."""
    clock = _Clock()
    Pace(0, clock, clock.sleep).take(1 << 40, lambda: False)
    assert clock.at == 0.0


def test_who_is_asked_to_stop_does_not_wait_on() -> None:
    """Within half a second."""
    clock = _Clock()
    Pace(1, clock, clock.sleep).take(1000, lambda: clock.at > 3)
    assert clock.at < 4
