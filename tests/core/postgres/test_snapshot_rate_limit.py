"""The limit on what a snapshot reads: bytes over time, with a clock that only sleeping moves."""

from __future__ import annotations

from lakeproof.snapshot.copy.rate_limit import RateLimiter


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_no_more_than_the_limit_on_average() -> None:
    """The limit holds for all sizes; an idle time is not saved up."""
    clock = _Clock()
    limiter = RateLimiter(1000, clock, clock.sleep)
    for size in (500, 10, 3000, 1490):
        limiter.acquire(size, lambda: False)
    assert abs(clock.now - 5.0) < 1e-6
    clock.now = 100.0
    limiter.acquire(2000, lambda: False)
    assert abs(clock.now - 102.0) < 1e-6


def test_a_limit_of_0_is_none() -> None:
    """A limit of 0 makes no reader wait."""
    clock = _Clock()
    RateLimiter(0, clock, clock.sleep).acquire(1 << 40, lambda: False)
    assert clock.now == 0.0


def test_who_is_asked_to_stop_does_not_wait_on() -> None:
    """The reader returns within half a second."""
    clock = _Clock()
    RateLimiter(1, clock, clock.sleep).acquire(1000, lambda: clock.now > 3)
    assert clock.now < 4
