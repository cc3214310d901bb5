"""Limits every wait for a server's answer, and ends the wait if a stop is requested.

A server, or a proxy before it, may keep a connection open and stay silent: TCP sees no fault, no statement timeout is ever
reported, and libpq waits for ever. A caller that must not hang sets a timeout, and every connection opened inside has it:

    with use_timeout(Timeout(silence_s=300, stop=stop)):
        conn = connect(dsn)          # gives up after 300 s, or if asked to stop
    conn.execute(...)                # so does each statement on it, wherever it is run

Giving up closes the connection and raises psycopg.OperationalError, which becomes a TransientError like a lost network.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg

from lakeproof.events import Stop

T = TypeVar("T")
# The messages of giving up; `connect.py` treats both as no fault of the request.
ASKED_TO_STOP = "asked to stop while it was waited for"
SILENT = "connection timeout: no answer for {:g} s"
# How often a wait for a thread checks if it is over.
_LOOK_S = 0.05
_READY_NONE = 0


@dataclass(frozen=True, slots=True)
class Timeout:
    """Wait at most `silence_s` seconds for an answer, or `grace_s` seconds once `stop` is requested."""

    silence_s: float
    stop: Stop | None = None
    grace_s: float = 0.0


@dataclass(slots=True)
class Wait:
    """One wait within a timeout; `begun` is when the server last sent something."""

    timeout: Timeout
    begun: float = field(default_factory=time.monotonic)
    stopped: float | None = None

    def give_up_reason(self) -> str | None:
        """Return the reason to give up now, None to go on."""
        now, stop = time.monotonic(), self.timeout.stop
        if stop is not None and stop.requested:
            self.stopped = self.stopped or now
            if now - self.stopped >= self.timeout.grace_s:
                return ASKED_TO_STOP
        return SILENT.format(self.timeout.silence_s) if now - self.begun >= self.timeout.silence_s else None


_IN_FORCE: ContextVar[Timeout | None] = ContextVar("timeout", default=None)


@contextmanager
def use_timeout(timeout: Timeout) -> Iterator[None]:
    """Give `timeout` to the connections that this thread opens inside; they keep it afterwards."""
    before = _IN_FORCE.set(timeout)
    try:
        yield
    finally:
        _IN_FORCE.reset(before)


class TimedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that gives up by the timeout it was opened with; without one it waits like any other."""

    timeout: Timeout | None = None

    @classmethod
    def open(cls, conninfo: str) -> TimedConnection:
        """Connect, in autocommit mode and without prepared statements; raises psycopg.Error."""
        timeout = _IN_FORCE.get()

        def connected() -> TimedConnection:
            return cls.connect(conninfo, autocommit=True, prepare_threshold=None)

        if timeout is None:
            return connected()
        # A host's name may take long to resolve; only a thread that waits beside it can end that wait.
        conn = in_thread(connected, Wait(timeout).give_up_reason, lambda late: late.close())
        conn.timeout = timeout
        return conn

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        """Run one of psycopg's conversations with the server within the timeout."""
        if self.timeout is None:
            return super().wait(gen, *args, **kwargs)
        try:
            return super().wait(_watched(gen, Wait(self.timeout)), *args, **kwargs)
        except _GivenUpError:
            # The answer may still come, and would be taken for that of the next question.
            self.pgconn.finish()
            raise


class _GivenUpError(psycopg.OperationalError):
    """The timeout is over."""


def _watched(gen: Generator[Any, Any, T], wait: Wait) -> Generator[Any, Any, T]:
    """Run the same conversation; psycopg returns ten times a second if nothing comes."""
    try:
        awaited = next(gen)
        while True:
            ready = yield awaited
            if ready == _READY_NONE:
                why = wait.give_up_reason()
                if why is not None:
                    raise _GivenUpError(why)
            else:
                wait.begun = time.monotonic()
            awaited = gen.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result


def in_thread(call: Callable[[], T], given_up: Callable[[], str | None], discard: Callable[[T], object]) -> T:
    """Run `call` in a thread beside this one and return its result; stop waiting once `given_up()` returns a reason.

    Raises what `call` raises; psycopg.OperationalError if it was given up. A result that comes too late goes to
    `discard`. An abandoned thread ends with its call, or with the process.
    """
    context, future = copy_context(), Future[T]()

    def run() -> None:
        try:
            future.set_result(context.run(call))
        except BaseException as error:  # noqa: BLE001  raised again in the thread that waits
            future.set_exception(error)

    def discard_late(late: Future[T]) -> None:
        if late.exception() is None:
            discard(late.result())

    threading.Thread(target=run, name="lakeproof-in-thread", daemon=True).start()
    while not wait([future], _LOOK_S).done:
        why = given_up()
        if why is not None:
            future.add_done_callback(discard_late)
            raise _GivenUpError(why)
    return future.result()
