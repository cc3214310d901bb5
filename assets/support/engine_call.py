"""Runs an engine call so that ending a Dagster run ends the call cleanly, and its errors read as one line.

Dagster ends a run by raising an exception in the main thread, wherever that thread is. So the engine works in a thread
of its own, the main thread waits, and the exception becomes a request to stop at the next safe point. So does the end of
a run that Dagster has noted without asking its process (`OwnRun`). Reporting what the call returns does not belong here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import dagster as dg
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus

from assets.support.event_log import to_run_log
from lakeproof.config.table_names import table_text
from lakeproof.errors import LakeproofError, TransientError
from lakeproof.events import RunControl, Stop
from lakeproof.names import TableName
from resources import Compute

T = TypeVar("T")
# The calls of this process that have not ended.
_at_work: list[Stop] = []

# One writer at a time: proof, compaction and maintenance of a source take turns. A step waits ten minutes at most.
_RETRIES_MAX = 40
_RETRY_S = 15
# The longest time until the main thread notices a request to end, or reports a new event.
_TICK_S = 0.25


def run_engine(
    engine: Callable[[Stop], T], meanwhile: Callable[[], None] = lambda: None, achieved: Callable[[], str] | None = None
) -> T:
    """Return the engine's result; `meanwhile` runs in the calling thread, about four times a second and once at the end.

    Raises dagster.Failure for the engine's own errors; Dagster may retry only those that are transient. Raises also when the
    run is over in Dagster: before the engine has begun, or after it has ended at its next safe point. If a person terminated
    the run, its log says so first, with what `achieved` returns then: up to where the work is durable.
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
    run = own_run.read() if achieved is not None and own_run.is_only_step else None
    if isinstance(run, DagsterRun) and run.status is DagsterRunStatus.CANCELING:
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


def run_command(
    context: dg.AssetExecutionContext | dg.OpExecutionContext,
    compute: Compute,
    *words: str,
    achieved: Callable[[], str] | None = None,
) -> Any:
    """Return the result of a command, as it prints it with `--json`; raises as `run_engine_in_turn` does."""
    report = to_run_log(context.log.info)
    return run_engine_in_turn(
        lambda stop: compute.run(context, words, RunControl(report, stop)), context.retry_number, achieved
    )


def table_words(option: str, tables: Iterable[TableName]) -> list[str]:
    """Return an option with a list of tables as a command takes it; nothing without a table."""
    listed = ",".join(map(table_text, tables))
    return [option, listed] if listed else []


_log = logging.getLogger("lakeproof.dagster")
# Between two looks: one row of Dagster's database. A process that was stopped looks as soon as it goes on.
LOOK_S = 5.0
# A request to terminate comes as an exception within a moment, unless the code server that passes it on is gone.
CANCELING_S = 15.0


class RunIsOverError(dg.Failure):
    """The run has ended in Dagster while its process was at work; it is not tried again."""

    def __init__(self, state: str) -> None:
        super().__init__(
            f"this run {state} in Dagster while its process was at work: the process ends itself", allow_retries=False
        )


@dataclass(slots=True)
class OwnRun:
    """The run of this process, in the instance that has it; `note` writes a line to its log."""

    instance: DagsterInstance
    run_id: str
    clock: Callable[[], float] = time.monotonic
    note: Callable[[str], None] = _log.info
    is_only_step: bool = False
    _looked_s: float = field(default=float("-inf"), init=False)
    _canceling_s: float | None = field(default=None, init=False)

    @classmethod
    def current(cls) -> OwnRun | None:
        """Return the run whose step calls this; None outside of one."""
        try:
            context = dg.OpExecutionContext.get()
        except dg.DagsterInvariantViolationError:
            return None
        is_only_step = len(context.job_def.nodes) == 1
        return cls(context.instance, context.run_id, note=context.log.info, is_only_step=is_only_step)

    def read(self) -> DagsterRun | Literal["deleted"] | None:
        """Return the run's record; None if it can't be read: a database that is away has many errors, and ends no work."""
        try:
            return self.instance.get_run_by_id(self.run_id) or "deleted"
        except Exception as error:  # noqa: BLE001  (as above)
            _log.warning("the record of run %s can't be read: %s", self.run_id, type(error).__name__)
            return None

    def check(self) -> None:
        """Look at the record if that is due; raise RunIsOverError if the run is over, and as Dagster does if canceled."""
        now_s = self.clock()
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        run = self.read()
        if run is None:
            return
        if run == "deleted":
            raise RunIsOverError("was deleted")
        if run.status is DagsterRunStatus.CANCELED or self._is_long_canceling(run.status, now_s):
            raise dg.DagsterExecutionInterruptedError
        if run.is_finished:
            raise RunIsOverError(f"became {run.status.value}")

    def _is_long_canceling(self, status: DagsterRunStatus, now_s: float) -> bool:
        if status is not DagsterRunStatus.CANCELING:
            self._canceling_s = None
            return False
        if self._canceling_s is None:
            self._canceling_s = now_s
        return now_s - self._canceling_s >= CANCELING_S
