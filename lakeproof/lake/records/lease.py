"""The source's one exclusive lease: who may write to its lake tables now (invariant one-writer).

Writing under it does not belong here but in `lakeproof.lake.cycle`.

A process takes an epoch by putting its document if there is none; the newest epoch is the lease. On a local lake the holder
also keeps an exclusive `flock`, which a killed process gives up at once: so a second compaction is refused while the first
one lives, and needs no timeout once it is dead. Its JVM may live on for seconds: the next holder on the same host ends it
(`outlived_jvm`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from lakeproof.errors import LakeError, TransientError
from lakeproof.lake.records.outlived_jvm import Process, jvm_of, process
from lakeproof.storage.document_fields import read_document, write_document
from lakeproof.storage.fields import now_text
from lakeproof.storage.locks import exclusive
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import AlreadyExistsError, Store, make_root

if TYPE_CHECKING:
    # A process that only reads leases starts no Spark.
    from pyspark.sql import SparkSession

LEASE_FORMAT = "lakeproof.lease/1"


@dataclass(frozen=True, slots=True)
class Lease:
    """A held lease. `check` is called before each commit."""

    store: Store
    paths: LakePaths
    epoch: int
    writer: str

    def check(self) -> None:
        """Raise TransientError if someone else has taken a newer epoch since."""
        newest = newest_epoch(self.store, self.paths)
        if newest != self.epoch:
            raise TransientError(
                f"{self.paths.source}: lease",
                f"epoch {self.epoch} was followed by epoch {newest}: another process has taken over",
                "nothing is lost; try again when that process has ended",
            )


def newest_epoch(store: Store, paths: LakePaths) -> int:
    """Return the epoch of the newest lease ever taken, 0 if there was none; raises LakeError for a foreign file."""
    keys = store.list(paths.leases)
    if not keys:
        return 0
    name = keys[-1].rpartition("/")[2].removesuffix(".json")
    if not name.isdecimal():
        raise LakeError(keys[-1], "its name is not an epoch", "move the file away")
    return int(name)


@contextmanager
def hold_lease(store: Store, paths: LakePaths, session: SparkSession | None = None) -> Iterator[Lease]:
    """Take the next epoch and keep it for the block; raises TransientError if a living process holds the lease.

    `session` is that of the JVM that will write.
    """
    make_root(paths.lake)
    with exclusive(
        Path(paths.url(paths.lease_lock)), f"{paths.source}: lease", "another process is writing to this source's lake"
    ):
        _end_jvm_of_last_holder(store, paths)
        yield _take(store, paths, jvm_of(session))


def lease_holder(store: Store, paths: LakePaths) -> str | None:
    """Return host, process and time of the newest lease, for messages; None if there was none."""
    epoch = newest_epoch(store, paths)
    if epoch == 0:
        return None
    key = paths.lease(epoch)
    f = read_document(store.get(key), LEASE_FORMAT, key)
    return f"process {f.object('process').count('pid')} on {f.text('host')} since {f.text('created_at')}"


def _end_jvm_of_last_holder(store: Store, paths: LakePaths) -> None:
    """End it if that holder's process is gone: a living process gave the lease back, and its JVM is idle."""
    epoch = newest_epoch(store, paths)
    if epoch == 0:
        return
    f = read_document(store.get(paths.lease(epoch)), LEASE_FORMAT, paths.lease(epoch))
    if f.value("jvm") is None or f.text("host") != socket.gethostname():
        return
    holder, jvm = (Process(one.count("pid"), one.count("started")) for one in (f.object("process"), f.object("jvm")))
    if jvm.lives and not holder.lives:
        jvm.end(f"{paths.source}: lease")


def _take(store: Store, paths: LakePaths, jvm: Process | None) -> Lease:
    writer = uuid4().hex
    epoch = newest_epoch(store, paths) + 1
    data = write_document(
        LEASE_FORMAT,
        epoch=epoch,
        writer=writer,
        host=socket.gethostname(),
        process=_as_json(process(os.getpid()) or Process(os.getpid(), 0)),
        jvm=None if jvm is None else _as_json(jvm),
        created_at=now_text(),
    )
    try:
        store.put_if_absent(paths.lease(epoch), data)
    except AlreadyExistsError:
        raise TransientError(
            f"{paths.source}: lease", f"epoch {epoch} was taken by another process at the same time", "try again"
        ) from None
    return Lease(store, paths, epoch, writer)


def _as_json(one: Process) -> dict[str, int]:
    return {"pid": one.pid, "started": one.started}
