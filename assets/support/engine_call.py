"""Runs an engine call so that ending a Dagster run ends the call cleanly, and its errors read as one line.

Dagster ends a run by an exception in the main thread, wherever that thread is; so the engine works in a thread of its
own, the main thread waits, and the exception becomes a request to stop at the next safe point.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import dagster as dg

from lakeproof.errors import LakeproofError, TransientError
from lakeproof.events import Stop

T = TypeVar("T")

# One writer at a time: a proof, a compaction and maintenance of a source take turns, for ten minutes at most.
_RETRIES_MAX = 40
_RETRY_S = 15
# How long a request to end or a new event may wait for the main thread to look up.
_TICK_S = 0.25


def _nothing() -> None:
    """The default of `meanwhile`."""


def call(engine: Callable[[Stop], T], meanwhile: Callable[[], None] = _nothing) -> T:
    """The engine's result; `meanwhile` runs in the calling thread, about four times a second and once at the end.

    Raises dagster.Failure for the engine's own errors, to be tried again by Dagster only where they are transient.
    """
    stop, go, done = Stop(), threading.Event(), threading.Event()
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
        # Not before `start` has returned: whether a thread runs that an exception overtook there, nobody knows.
        go.set()
        # An event, since a join that an exception breaks off takes the thread for ended (Python 3.10 to 3.12).
        while not done.wait(_TICK_S):
            meanwhile()
    finally:
        stop.request()
        if go.is_set():
            done.wait()
            meanwhile()
        go.set()
    try:
        return outcome.result()
    except LakeproofError as error:
        raise failure(error) from error


def failure(error: LakeproofError) -> dg.Failure:
    """An engine error as Dagster shows it: one line, with thing, reason and remedy as metadata too."""
    return dg.Failure(
        description=str(error),
        metadata={"thing": error.thing, "reason": error.reason, "remedy": error.remedy},
        allow_retries=isinstance(error, TransientError),
    )


def call_in_turn(engine: Callable[[Stop], T], tries: int = 0) -> T:
    """As `call`, for steps that wait for their turn: most often another run has the lake's lease.

    Raises dg.RetryRequested, but dagster.Failure after as many `tries` as there may be. A retry policy would also repeat
    what can't succeed.
    """
    try:
        return call(engine)
    except dg.Failure as failure:
        if failure.allow_retries and tries < _RETRIES_MAX:
            raise dg.RetryRequested(_RETRIES_MAX, _RETRY_S) from failure
        raise
