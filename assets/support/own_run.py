"""The record of the run that this process works for: a process whose run is over in Dagster must not work on.

Dagster marks runs FAILURE or CANCELED, and lets people delete them, without asking their processes: a sensor that took one
for dead, its own monitoring, a request to terminate that never reached it. Such a process would go on where nobody can see
or end it. Ending the work cleanly does not belong here (`engine_call.py`), nor deciding who is dead
(`orchestration.policies`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus

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

    def is_canceling(self) -> bool:
        """True if a person has terminated the run, and its process is to end; False, too, if that can't be read."""
        try:
            run = self.instance.get_run_by_id(self.run_id)
        except Exception as error:  # noqa: BLE001  (as below)
            _unread(self.run_id, error)
            return False
        return run is not None and run.status is DagsterRunStatus.CANCELING

    def check(self) -> None:
        """Look at the record if that is due; raise RunIsOverError if the run is over, and as Dagster does if canceled."""
        now_s = self.clock()
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        try:
            run = self.instance.get_run_by_id(self.run_id)
        except Exception as error:  # noqa: BLE001  (a database that is away has many errors, and ends no work)
            _unread(self.run_id, error)
            return
        if run is None:
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


def _unread(run_id: str, error: Exception) -> None:
    _log.warning("the record of run %s can't be read: %s", run_id, type(error).__name__)
