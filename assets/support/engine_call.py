"""Runs an engine call so that ending a Dagster run ends the call cleanly, and its errors read as one line.

Dagster ends a run by raising an exception in the main thread, wherever that thread is. So the engine works in a thread
of its own, the main thread waits, and the exception becomes a request to stop at the next safe point. So does the end of
a run that Dagster has noted without asking its process (`own_run.py`). Reporting what the call returns does not belong here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import dagster as dg

from assets.support.own_run import OwnRun
from lakeproof.errors import LakeproofError, TransientError
from lakeproof.events import Stop

T = TypeVar("T")
# The calls of this process that have not ended.
_at_work: list[Stop] = []

# One writer at a time: proof, compaction and maintenance of a source take turns. A step waits ten minutes at most.
_RETRIES_MAX = 40
_RETRY_S = 15
# The longest time until the main thread notices a request to end, or reports a new event.
_TICK_S = 0.25


def _nothing() -> None:
    """The default of `meanwhile`."""


def run_engine(
    engine: Callable[[Stop], T], meanwhile: Callable[[], None] = _nothing, achieved: Callable[[], str] | None = None
) -> T:
    """Return the engine's result; `meanwhile` runs in the calling thread, about four times a second and once at the end.

    Raises dagster.Failure for the engine's own errors; Dagster may retry only those that are transient. Raises, too, when
    the run is over in Dagster: before the engine has begun, or after it has ended at its next safe point. If a person
    terminated the run, its log says so first, with what `achieved` returns then: up to where the work is durable.
    """
    own_run = OwnRun.current()
    try:
        return _run_engine(own_run, engine, meanwhile)
    except dg.DagsterExecutionInterruptedError:
        raise _stopped(own_run, achieved) from None


def _run_engine(own_run: OwnRun | None, engine: Callable[[Stop], T], meanwhile: Callable[[], None]) -> T:
    if own_run is not None:
        own_run.check()
    stop, go, done = Stop(), threading.Event(), threading.Event()
    _at_work.append(stop)
    outcome: Future[T] = Future()

    def work() -> None:
        go.wait()
        try:
            if not stop.requested:
                outcome.set_result(engine(stop))
        except BaseException as error:  # noqa: BLE001  (it is raised again in the thread that waits)
            outcome.set_exception(error)
        finally:
            done.set()

    try:
        threading.Thread(target=work, name="lakeproof").start()
        # Only after `start()` has returned: if an exception interrupts `start()`, we can't know if the thread runs.
        go.set()
        # An event, not a join: a join that an exception interrupts regards the thread as ended (Python 3.10 to 3.12).
        while not done.wait(_TICK_S):
            if own_run is not None:
                own_run.check()
            meanwhile()
    finally:
        _at_work.remove(stop)
        stop.request()
        if go.is_set():
            done.wait()
            meanwhile()
        go.set()
    try:
        return outcome.result()
    except LakeproofError as error:
        raise failure(error) from error


def _stopped(own_run: OwnRun | None, achieved: Callable[[], str] | None) -> BaseException:
    """Note in the run's log that it was stopped, and return what ends its step.

    Dagster shows an interruption as a failed step and a canceled run, with a stack trace each. A failure of the only step
    of a run that is being canceled is shown by its sentence, and the run is canceled without a further word. Of several
    steps only an interruption keeps the next from beginning, and only who can say what was achieved ends with a failure.
    """
    text = "stopped as asked"
    if own_run is None:
        return dg.DagsterExecutionInterruptedError(text)
    if achieved is not None:
        try:
            text = f"{text}; {achieved()}"
        except (LakeproofError, OSError) as error:
            text = f"{text}; how far it came can't be read: {error}"
    own_run.note(text)
    if achieved is not None and own_run.is_only_step and own_run.is_canceling():
        return dg.Failure(text, allow_retries=False)
    return dg.DagsterExecutionInterruptedError(text)


def end_soon() -> None:
    """Ask every engine call of this process to end at its next safe point; its run then succeeds, and is not canceled."""
    for stop in _at_work:
        stop.request()


def failure(error: LakeproofError) -> dg.Failure:
    """Return an engine error as Dagster shows it: one line, with thing, reason and remedy also as metadata."""
    return dg.Failure(
        description=str(error),
        metadata={"thing": error.thing, "reason": error.reason, "remedy": error.remedy},
        allow_retries=isinstance(error, TransientError),
    )


def run_engine_in_turn(engine: Callable[[Stop], T], tries: int = 0, achieved: Callable[[], str] | None = None) -> T:
    """Like `run_engine`, for steps that may have to wait their turn: most often another run holds the lake's lease.

    Raises dg.RetryRequested after a transient error, but dagster.Failure once `tries` has reached the limit. A Dagster retry
    policy would also repeat steps that can't succeed.
    """
    try:
        return run_engine(engine, achieved=achieved)
    except dg.Failure as failure:
        if failure.allow_retries and tries < _RETRIES_MAX:
            raise dg.RetryRequested(_RETRIES_MAX, _RETRY_S) from failure
        raise
