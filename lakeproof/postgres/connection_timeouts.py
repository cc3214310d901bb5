"""How long whoever asks a server waits for its answer, and that a stop ends the wait.

What is asked belongs to the callers; how a stream is listened to, to `stream.py`, which has a clock of its own.

A server, or a proxy before it, may keep a connection and say nothing more: TCP sees no fault, no statement's timeout is
ever heard of, and libpq waits for ever. Whoever has to last sets a patience, and every connection that is made within it
has it:

    with within(Patience(silence_s=300, stop=stop)):
        conn = connect(dsn)          # gives up after 300 s, or when asked to stop
    conn.execute(...)                # so does each question over it, wherever it is asked

Giving up closes the connection and raises psycopg.OperationalError, which becomes a TransientError like a lost network.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import psycopg

from lakeproof.events import Stop

T = TypeVar("T")
# What giving up says; `connection.py` knows both as no fault of what was asked for.
ASKED_TO_STOP = "asked to stop while it was waited for"
SILENT = "connection timeout: no answer for {:g} s"
# How often a wait for a thread looks whether it is over.
_LOOK_S = 0.05
_READY_NONE = 0


@dataclass(frozen=True, slots=True)
class Patience:
    """An answer is waited for `silence_s` seconds; where `stop` is asked for, `grace_s` seconds more."""

    silence_s: float
    stop: Stop | None = None
    grace_s: float = 0.0


@dataclass(slots=True)
class Wait:
    """One wait within a patience; `begun` is when something was last heard."""

    patience: Patience
    begun: float = field(default_factory=time.monotonic)
    stopped: float | None = None

    def over(self) -> str | None:
        """Why it is to be given up by now, None where it goes on."""
        now, stop = time.monotonic(), self.patience.stop
        if stop is not None and stop.requested:
            self.stopped = self.stopped or now
            if now - self.stopped >= self.patience.grace_s:
                return ASKED_TO_STOP
        return SILENT.format(self.patience.silence_s) if now - self.begun >= self.patience.silence_s else None


_IN_FORCE: ContextVar[Patience | None] = ContextVar("patience", default=None)


@contextmanager
def within(patience: Patience) -> Iterator[None]:
    """Connections that this thread makes inside have `patience`, also later on."""
    before = _IN_FORCE.set(patience)
    try:
        yield
    finally:
        _IN_FORCE.reset(before)


class PatientConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that gives up by the patience it was made with; without one it waits like any other."""

    patience: Patience | None = None

    @classmethod
    def open(cls, conninfo: str) -> PatientConnection:
        """Connect, in autocommit mode and without prepared statements; raises psycopg.Error."""
        patience = _IN_FORCE.get()

        def connected() -> PatientConnection:
            return cls.connect(conninfo, autocommit=True, prepare_threshold=None)

        if patience is None:
            return connected()
        # A host's name may take long to resolve, and nothing ends that but a thread that waits beside it.
        conn = aside(connected, Wait(patience).over, lambda late: late.close())
        conn.patience = patience
        return conn

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        """Run one of psycopg's conversations with the server, as long as patience lasts."""
        if self.patience is None:
            return super().wait(gen, *args, **kwargs)
        try:
            return super().wait(_watched(gen, Wait(self.patience)), *args, **kwargs)
        except _GivenUpError:
            # Its answer may still come, and would be taken for that of the next question.
            self.pgconn.finish()
            raise


class _GivenUpError(psycopg.OperationalError):
    """Patience is over."""


def _watched(gen: Generator[Any, Any, T], wait: Wait) -> Generator[Any, Any, T]:
    """The same conversation; psycopg looks in ten times a second where nothing comes."""
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready == _READY_NONE:
                why = wait.over()
                if why is not None:
                    raise _GivenUpError(why)
            else:
                wait.begun = time.monotonic()
            wanted = gen.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result


@dataclass(slots=True)
class _Errand(Generic[T]):
    """What a thread was sent for: one result, or one error."""

    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    results: list[T] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    unwanted: bool = False


def aside(call: Callable[[], T], given_up: Callable[[], str | None], discard: Callable[[T], object]) -> T:
    """What `call` gives, made in a thread beside this one until `given_up()` says why it is no longer waited for.

    Raises what `call` raises; psycopg.OperationalError where it was given up: what comes all the same goes to `discard`.
    A thread that is left ends with its call, or with the process.
    """
    errand: _Errand[T] = _Errand()
    context = copy_context()

    def run() -> None:
        try:
            errand.results.append(context.run(call))
        except BaseException as error:  # noqa: BLE001  raised again in the thread that waits
            errand.errors.append(error)
        with errand.lock:
            errand.over.set()
            late = errand.unwanted
        for result in errand.results if late else ():
            discard(result)

    threading.Thread(target=run, name="lakeproof-aside", daemon=True).start()
    while not errand.over.wait(_LOOK_S):
        why = given_up()
        if why is not None:
            with errand.lock:
                errand.unwanted = not errand.over.is_set()
            if errand.unwanted:
                raise _GivenUpError(why)
    for error in errand.errors:
        raise error
    return errand.results[0]
