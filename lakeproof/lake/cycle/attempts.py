"""Counts the attempts to write a table in a cycle before each begins, so that a cycle ends, whatever becomes of one table.

The meaning of an error is in `lakeproof.lake.spark.failures`.

A document stands for each attempt while it lasts, and stays if it fails or its process dies. It goes when the table is
written, or if the attempt was ended by something that does not concern the table. Two failed attempts are enough, or three
of any kind, some of which may have ended with their process and without a word: then the table is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TypeVar

from lakeproof.errors import LakeError, TableError
from lakeproof.field_types import Count, CycleField, TableField
from lakeproof.lake.cycle.task import CycleTable
from lakeproof.lake.records.documents import Intent
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.lake.records.lease import Lease
from lakeproof.lake.spark.driver import DriverEnd, how_ended
from lakeproof.lake.spark.failures import concerns_all, jvm_is_gone, reason_of, unreadable_file
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import TableName
from lakeproof.storage.document import Document
from lakeproof.storage.store import put_new
from lakeproof.storage.times import now_text

T = TypeVar("T")
FAILED_MAX = 2
ENDED_MAX = 3
# A process may be killed for any reason: if it happens once, that says nothing of the table.
_SILENT_MAX = 1
_PROCESS_ENDED = "the process ended while it was written, or its JVM was killed (out of memory?)"
_JVM_ENDED = "the JVM ended while it was written"
_MEMORY = "`spark.driver_memory` says how much memory it may have"


@dataclass(frozen=True, slots=True)
class Attempt(Document):
    """One attempt; `reason` says how it failed, None while it lasts, and if its process died.

    `unreadable` is the file that could not be read.
    """

    FORMAT = "lakeproof.attempt/1"

    cycle: CycleField
    table: TableField
    number: Count
    writer: str
    written_at: str
    reason: str | None = None
    unreadable: str | None = None


def earlier_attempts(lease: Lease, intent: Intent) -> dict[TableName, list[Attempt]]:
    """Return the earlier attempts in this cycle, oldest first.

    Those of cycles that have ended are removed, and so is a damaged one: it counts for nothing, and must not end the cycle.
    """
    attempts: dict[TableName, list[Attempt]] = {}
    prefix = f"{intent.number:012d}-"
    for key in lease.lake.store.list(lease.lake.paths.attempts):
        attempt = None
        if key.rpartition("/")[2].startswith(prefix):
            with suppress(LakeError):
                attempt = Attempt.read(lease.lake.store, key)
        if attempt is None:
            lease.lake.store.delete(key)
        else:
            attempts.setdefault(attempt.table, []).append(attempt)
    return attempts


def _begin(target: CycleTable, earlier: Iterable[Attempt]) -> Attempt:
    """Count one more attempt, durably. Raises TransientError if another process has counted the same one."""
    number = max((attempt.number for attempt in earlier), default=0) + 1
    attempt = Attempt(target.intent.number, target.table, number, target.lease.writer, now_text())
    put_new(target.lake.store, _key(target.lease, attempt), attempt.to_bytes(), f"{target.table}: attempt {number}")
    return attempt


def _failed(lease: Lease, attempt: Attempt, reason: str, unreadable: str | None) -> Attempt:
    """Record how the attempt failed, durably."""
    ended = replace(attempt, reason=reason, unreadable=unreadable, written_at=now_text())
    lease.lake.store.put(_key(lease, ended), ended.to_bytes())
    return ended


def _forget(lease: Lease, attempts: Iterable[Attempt]) -> None:
    """Take back attempts that were counted."""
    for attempt in attempts:
        lease.lake.store.delete(_key(lease, attempt))


def _key(lease: Lease, attempt: Attempt) -> str:
    digest = sha256(attempt.table.key.encode()).hexdigest()[:16]
    return lease.lake.paths.attempt(attempt.cycle, digest, attempt.number)


class AttemptsError(TableHeldError):
    """A table could not be written, as often as that was tried; `unreadable` is the file that could not be read."""

    unreadable: str | None = None


def tried(spark: SparkOnDemand, target: CycleTable, earlier: Iterable[Attempt], once: Callable[..., T]) -> T:
    """Call `once(from_scratch=…)` as often as it may be tried: from scratch after one failure, or two silent ends.

    A JVM that was killed ends silently, like a process; one that was asked to end counts for nothing.

    Raises AttemptsError after enough attempts. Raises at once what `once` raises if it does not concern the table alone, if
    it refuses the table's data, or if nothing more can be done in this process.
    """
    attempts, lease = list(earlier), target.lease
    while True:
        _check(target.table, attempts)
        attempt = _begin(target, attempts)
        try:
            result = once(from_scratch=_is_at_fault(attempts))
        except Exception as error:
            if isinstance(error, TableError) or concerns_all(error):
                _forget(lease, [attempt])
                raise
            # The attempt itself may have started it.
            session = spark.started
            if jvm_is_gone(session, error):
                _jvm_ended(lease, attempt, how_ended(session))
                raise
            attempts.append(_failed(lease, attempt, reason_of(error), unreadable_file(error)))
        except BaseException:
            _forget(lease, [attempt])
            raise
        else:
            _forget(lease, [*attempts, attempt])
            return result


def _jvm_ended(lease: Lease, attempt: Attempt, end: DriverEnd | None) -> None:
    """Record an attempt whose JVM has ended: not at all if somebody asked that, and as the end of a process if killed."""
    if end is not None and end.asked:
        _forget(lease, [attempt])
    elif end is None:
        _failed(lease, attempt, f"{_JVM_ENDED}, most often for want of memory; {_MEMORY}", None)
    elif not end.silent:
        _failed(lease, attempt, f"{_JVM_ENDED}: {end.reason}; {_MEMORY}", None)


def _is_at_fault(attempts: Sequence[Attempt]) -> bool:
    """True if the table looks at fault: an attempt failed, or more ended with their process than chance explains."""
    return any(attempt.reason is not None for attempt in attempts) or len(attempts) > _SILENT_MAX


def _check(table: TableName, attempts: Sequence[Attempt]) -> None:
    """Raise AttemptsError if there were enough attempts."""
    failures = [attempt for attempt in attempts if attempt.reason is not None]
    if len(failures) < FAILED_MAX and len(attempts) < ENDED_MAX:
        return
    silent = len(attempts) - len(failures)
    problem = failures[-1].reason if failures else None
    detail = {"attempts": str(len(attempts)), "problem": problem or _PROCESS_ENDED}
    if failures and silent:
        detail["silent"] = str(silent)
    error = AttemptsError(str(table), HeldCause.NOT_WRITTEN, WayOut.SNAPSHOT, detail)
    error.unreadable = failures[-1].unreadable if failures else None
    raise error
