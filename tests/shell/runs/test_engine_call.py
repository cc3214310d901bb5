"""Ends of an engine call: its result, its error as one line, or a clean stop when Dagster ends the run."""

from __future__ import annotations

import os
import signal
import threading

import dagster as dg
import pytest

from assets.support.engine_call import end_soon, run_engine, run_engine_in_turn
from lakeproof.errors import ConfigError, LakeproofError, TransientError
from lakeproof.events import Stop


def test_the_result_is_the_engines() -> None:
    """The periodic function runs at least once, after the engine's last event."""
    looks: list[int] = []
    assert run_engine(lambda _stop: 42, meanwhile=lambda: looks.append(1)) == 42
    assert looks


def test_the_engine_works_in_another_thread() -> None:
    """The main thread stays free for the request to end the run."""
    assert run_engine(lambda _stop: threading.current_thread()) is not threading.main_thread()


@pytest.mark.parametrize(("kind", "retried"), [(TransientError, True), (ConfigError, False)])
def test_an_engine_error_becomes_a_failure_with_thing_reason_and_remedy(
    kind: type[LakeproofError], retried: bool
) -> None:
    """Dagster tries again only what may succeed when nothing is changed."""

    def fail(_stop: Stop) -> None:
        raise kind("slot s", "it was in use", "end the other drain")

    with pytest.raises(dg.Failure) as caught:
        run_engine(fail)
    assert caught.value.description == "slot s: it was in use; end the other drain"
    assert caught.value.allow_retries is retried
    assert {key: value.value for key, value in caught.value.metadata.items()} == {
        "thing": "slot s",
        "reason": "it was in use",
        "remedy": "end the other drain",
    }


def test_any_other_error_comes_through_as_it_is() -> None:
    """A mistake of ours is not dressed up."""

    def fail(_stop: Stop) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_engine(fail)


def test_ending_the_run_stops_the_engine_and_waits_for_it() -> None:
    """The exception arrives in the main thread; the engine ends at its next safe point before it goes on."""
    ended = threading.Event()

    def work(stop: Stop) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert stop.wait(90)
        ended.set()

    def interrupt(_signal: int, _frame: object) -> None:
        raise dg.DagsterExecutionInterruptedError

    looks: list[bool] = []
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(dg.DagsterExecutionInterruptedError):
            run_engine(work, meanwhile=lambda: looks.append(ended.is_set()))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ended.is_set()
    assert looks[-1]


def test_an_error_in_what_is_done_meanwhile_stops_the_engine_too() -> None:
    """A drain whose events can't be written doesn't go on unseen."""

    def fail() -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        run_engine(lambda stop: stop.wait(90), meanwhile=fail)


@pytest.mark.parametrize(("kind", "ends_as"), [(TransientError, dg.RetryRequested), (ConfigError, dg.Failure)])
def test_only_what_may_succeed_later_waits_for_its_turn(kind: type[LakeproofError], ends_as: type[Exception]) -> None:
    """Wait for another process's lease; report any other error at once."""

    def fail(_stop: Stop) -> None:
        raise kind("shop: lease", "it was held", "try again")

    assert run_engine_in_turn(lambda _stop: 42) == 42
    with pytest.raises(ends_as):
        run_engine_in_turn(fail)


def test_the_last_try_says_why_instead_of_asking_for_another() -> None:
    """The caller may report the outcome before the run fails."""

    def fail(_stop: object) -> None:
        raise TransientError("lease", "somebody has it", "wait")

    with pytest.raises(dg.RetryRequested):
        run_engine_in_turn(fail, 39)
    with pytest.raises(dg.Failure, match="somebody has it"):
        run_engine_in_turn(fail, 40)


def test_a_host_that_ends_a_call_gets_its_result() -> None:
    """The run succeeds: nobody has terminated it. A call that begins later goes on."""

    def work(stop: Stop) -> str:
        # Not before the call has begun: it would go on.
        threading.Thread(target=end_soon).start()
        return "ended" if stop.wait(60) else "not asked"

    assert run_engine(work) == "ended"
    assert run_engine(lambda stop: stop.requested) is False
