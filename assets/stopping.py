"""Runs an engine call so that ending a Dagster run ends the call cleanly, and its errors read as one line.

Dagster ends a run by an exception in the main thread, wherever that thread is; so the engine works in a thread of its
own, the main thread waits, and the exception becomes a request to stop at the next safe point.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
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
    stop = Stop()
    with ThreadPoolExecutor(1, thread_name_prefix="wal2delta") as pool:
        future = pool.submit(engine, stop)
        try:
            while not wait([future], timeout=_TICK_S).done:
                meanwhile()
        finally:
            # Leaving the block waits for the engine, so the request comes first.
            stop.request()
            wait([future])
            meanwhile()
    try:
        return future.result()
    except Wal2DeltaError as error:
        raise failure(error) from error


def failure(error: Wal2DeltaError) -> dg.Failure:
    """An engine error as Dagster shows it: one line, with thing, reason and remedy as metadata too."""
    return dg.Failure(
        description=str(error),
        metadata={"thing": error.thing, "reason": error.reason, "remedy": error.remedy},
        allow_retries=isinstance(error, TransientError),
    )
