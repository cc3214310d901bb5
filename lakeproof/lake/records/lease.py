"""The source's one exclusive lease: who may write to its lake tables now (invariant one-writer).

Writing under the lease is in `lakeproof.lake.cycle`.

A process takes an epoch by putting its document if there is none; the newest epoch is the lease. The holder also keeps a
lock of the store (in a local folder a `flock`, which a killed process gives up at once): so a second compaction is refused
while the first one lives. Its JVM may live on for seconds, and still write files: the next holder on the same host ends it.
A process is identified by its number and the time of its start, since the system gives a number again. If the system has no
`/proc`, nothing is done.

A process that follows the landing holds the lease as long as nobody else wants it. Whoever comes then waits for its turn,
with a lock that the follower looks for between two cycles (`someone_waits`).
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lakeproof.errors import TransientError
from lakeproof.events import Stop
from lakeproof.field_types import Count
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.storage.document import Document, Part
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import number_in, put_new, refuse_if_locked
from lakeproof.storage.times import now_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TIMEOUT_S = 30.0
_POLL_S = 0.05
# Of what follows the command's name in /proc/<pid>/stat.
_STATE, _STARTED = 0, 19


@dataclass(frozen=True, slots=True)
class Process(Part):
    """A process of this machine: its number, and its start in the kernel's ticks since boot."""

    pid: Count
    started: Count

    @property
    def lives(self) -> bool:
        """True if the process still runs."""
        return process(self.pid) == self

    def end(self, thing: str) -> None:
        """Kill it, and wait until it is gone; raises TransientError about `thing` if it does not go."""
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGKILL)
        until = time.monotonic() + _TIMEOUT_S
        while self.lives:
            if time.monotonic() > until:
                raise TransientError(thing, f"the JVM of its last holder still runs (process {self.pid})", "end it")
            time.sleep(_POLL_S)


def process(pid: int) -> Process | None:
    """Return the process of this number, None if there is none, or if the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return None if fields[_STATE] in ("Z", "X") else Process(pid, int(fields[_STARTED]))
    except (OSError, IndexError, ValueError):
        return None


def jvm_of(session: SparkSession | None) -> Process | None:
    """Return the session's JVM if this process started it on this machine, else None."""
    gateway: Any = None if session is None else session.sparkContext._gateway  # noqa: SLF001  PySpark has no public name for its JVM
    child = getattr(gateway, "proc", None)
    return None if child is None else process(child.pid)


# The longest time that a follower's cycle may keep somebody else waiting.
TURN_S = 600.0
_TAKEN = "another process is writing to this source's lake"
# On an object store each look is a request.
_LOOK_S = 0.25


@dataclass(frozen=True, slots=True)
class LeaseDoc(Document):
    """A taken epoch: its holder and, if the holder works with one, its JVM."""

    FORMAT = "lakeproof.lease/1"
    REMEDY = (
        "end every JVM of lakeproof that still runs, on each of its hosts, then delete this file: a lease is taken anew"
    )

    epoch: Count
    writer: str
    host: str
    process: Process
    jvm: Process | None
    created_at: str


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that this process has. `check` is called before each commit."""

    lake: SourceLake
    epoch: int
    writer: str

    def check(self) -> None:
        """Raise TransientError if someone else has taken a newer epoch since."""
        newest = newest_epoch(self.lake, self.epoch - 1)
        if newest != self.epoch:
            raise TransientError(
                f"{self.lake.source}: lease",
                f"epoch {self.epoch} was followed by epoch {newest}: another process has taken over",
                "nothing is lost; try again when that process has ended",
            )


def newest_epoch(lake: SourceLake, above: int = 0) -> int:
    """Return the epoch of the newest lease ever taken, 0 if there was none; raises LakeError for a foreign file.

    Numbers up to `above` are not looked at: there is one for each compaction since the last maintenance.
    """
    keys = lake.store.list(lake.paths.leases, lake.paths.lease(above) if above else "")
    return number_in(keys[-1]) if keys else 0


@contextmanager
def hold_lease(
    lake: SourceLake, spark: SparkSession | SparkOnDemand | None = None, stop: Stop | None = None
) -> Iterator[Lease]:
    """Take the next epoch and keep it for the block; raises TransientError if a living process holds the lease.

    If that process follows the landing, this waits for its turn, `TURN_S` seconds at most or until `stop` is requested.
    `spark` is that of the JVM that will write, once it runs.
    """
    with ExitStack() as stack:
        _lock_in_turn(lake, stack, stop or Stop())
        _end_jvm_of_last_holder(lake)
        lease = _take(lake)
        if spark is not None:
            stack.enter_context(SparkOnDemand.of(spark).heard_by(lambda session: _name_jvm(lease, jvm_of(session))))
        yield lease


def check_free(lake: SourceLake) -> None:
    """Raise TransientError as `hold_lease` would by now: before a run begins that would only have to wait.

    What a process that follows holds is as good as free: it lets others have their turn.
    """
    if not lake.store.is_locked(lake.paths.follow_lock):
        refuse_if_locked(lake.store, lake.paths.lease_lock, f"{lake.source}: lease", _TAKEN)


def someone_waits(lake: SourceLake) -> bool:
    """True if another process waits for the lease."""
    return bool(lake.store.is_locked(lake.paths.turn_lock))


@contextmanager
def followed(lake: SourceLake) -> Iterator[None]:
    """Show, while the block runs, that the holder of the lease gives it up for whoever waits."""
    lock = lake.store.share_lock(lake.paths.follow_lock, _LOOK_S)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def _lock_in_turn(lake: SourceLake, stack: ExitStack, stop: Stop) -> None:
    """Enter the lease's lock into `stack`; raises TransientError if it stays with another process."""
    thing, reason = f"{lake.source}: lease", _TAKEN
    try:
        stack.enter_context(lake.store.lock(lake.paths.lease_lock, thing, reason))
    except TransientError:
        if not lake.store.is_locked(lake.paths.follow_lock):
            raise
    else:
        return
    with lake.store.lock(lake.paths.turn_lock, thing, f"{reason}, and a third one waits for its turn"):
        deadline = time.monotonic() + TURN_S
        while True:
            try:
                stack.enter_context(lake.store.lock(lake.paths.lease_lock, thing, reason))
            except TransientError:
                if stop.wait(_LOOK_S) or time.monotonic() > deadline:
                    raise
            else:
                return


def lease_holder(lake: SourceLake) -> str | None:
    """Return host, process and time of the newest lease, for messages; None if there was none."""
    epoch = newest_epoch(lake)
    if epoch == 0:
        return None
    key = lake.paths.lease(epoch)
    doc = LeaseDoc.from_bytes(lake.store.get(key), key)
    return f"process {doc.process.pid} on {doc.host} since {doc.created_at}"


def _end_jvm_of_last_holder(lake: SourceLake) -> None:
    """End it if that holder's process is gone: a living process gave the lease back, and its JVM is idle."""
    epoch = newest_epoch(lake)
    if epoch == 0:
        return
    doc = LeaseDoc.from_bytes(lake.store.get(lake.paths.lease(epoch)), lake.paths.lease(epoch))
    if doc.jvm is None or doc.host != socket.gethostname():
        return
    if doc.jvm.lives and not doc.process.lives:
        doc.jvm.end(f"{lake.source}: lease")


def _take(lake: SourceLake) -> Lease:
    lease = Lease(lake, newest_epoch(lake) + 1, uuid4().hex)
    thing = f"{lake.source}: lease, epoch {lease.epoch}"
    put_new(lake.store, lake.paths.lease(lease.epoch), _document(lease, None).to_bytes(), thing)
    return lease


def _name_jvm(lease: Lease, jvm: Process | None) -> None:
    """Name the JVM that writes from now on: whoever follows ends it if this process is killed."""
    if jvm is not None:
        lease.lake.store.put(lease.lake.paths.lease(lease.epoch), _document(lease, jvm).to_bytes())


def _document(lease: Lease, jvm: Process | None) -> LeaseDoc:
    own = process(os.getpid()) or Process(os.getpid(), 0)
    return LeaseDoc(lease.epoch, lease.writer, socket.gethostname(), own, jvm, now_text())
