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

from wal2delta.errors import TransientError, Wal2DeltaError
from wal2delta.report import Stop

T = TypeVar("T")

# How long a request to end or a new event may wait for the main thread to look up.
_TICK_S = 0.25


def _nothing() -> None:
    """The default of `meanwhile`."""


def call(engine: Callable[[Stop], T], meanwhile: Callable[[], None] = _nothing) -> T:
    """The engine's result; `meanwhile` runs in the calling thread, about four times a second and once at the end.

    Raises dagster.Failure for the engine's own errors, to be tried again by Dagster only where they are transient.
    """
    stop, go = Stop(), threading.Event()
    outcome: Future[T] = Future()
    thread = threading.Thread(target=lambda: _work(engine, stop, go, outcome), name="wal2delta")
    try:
        thread.start()
        # Not before `start` has returned: a thread that an exception overtook there can't be waited for.
        go.set()
        while thread.is_alive():
            thread.join(_TICK_S)
            meanwhile()
    finally:
        stop.request()
        go.set()
        if thread.is_alive():
            thread.join()
            meanwhile()
    try:
        return outcome.result()
    except Wal2DeltaError as error:
        raise failure(error) from error


def _work(engine: Callable[[Stop], T], stop: Stop, go: threading.Event, outcome: Future[T]) -> None:
    go.wait()
    if stop.requested:
        return
    try:
        outcome.set_result(engine(stop))
    except BaseException as error:  # noqa: BLE001  (it is raised again in the thread that waits)
        outcome.set_exception(error)


def failure(error: Wal2DeltaError) -> dg.Failure:
    """An engine error as Dagster shows it: one line, with thing, reason and remedy as metadata too."""
    return dg.Failure(
        description=str(error),
        metadata={"thing": error.thing, "reason": error.reason, "remedy": error.remedy},
        allow_retries=isinstance(error, TransientError),
    )
