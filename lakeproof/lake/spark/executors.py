"""Checks whether a cluster's executors read and write the lake that the driver sees, before anything is written to it.

The session's settings belong to `session.py`. A session whose tasks run in the driver is not checked.

Without this check a folder that is not shared would be found late, or not at all: Spark's writers commit what the driver's
own folder has, and files in another machine's folder of the same name are simply not there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakeproof.config.location import LakeLocation
from lakeproof.config.section.spark import is_local
from lakeproof.errors import LakeError, LakeproofError, TransientError, manual
from lakeproof.lake.spark.failures import reason_of
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store

# A cluster may have to start machines for the first executor.
EXECUTOR_WAIT_S = 600.0
# Each of the files is a task; more tasks than executors, so that each executor gets some, as far as Spark spreads them.
_TASKS_PER_CORE, _TASKS_MAX = 2, 64
_ONE_FILE_EACH = {"spark.sql.files.maxPartitionBytes": "1", "spark.sql.files.openCostInBytes": "1"}
_POLL_S = 0.5
_PAGE = manual("Spark on a cluster", "What a cluster needs")
# The lakes that the executors of a session reach, by the application's id.
_reached: set[tuple[str, str]] = set()


def check_executors(session: SparkSession, lake: LakeLocation, wait_s: float = EXECUTOR_WAIT_S) -> None:
    """Raise LakeError unless driver and executors read each other's files.

    Raises TransientError if no executor comes within `wait_s`.
    """
    context = session.sparkContext
    checked = (str(context.applicationId), lake.url)
    if is_local(context.master) or checked in _reached:
        return
    store, folder = open_store(lake), LakePaths.executors_trial(uuid.uuid4().hex)
    try:
        tokens = _put(store, folder, min(_TASKS_MAX, _TASKS_PER_CORE * context.defaultParallelism))
        with _ends_without_executors(session, wait_s):
            _copy_by_tasks(session, lake, store, folder)
        if _copied(store, folder) != tokens:
            reason = "what its executors have written there is not where the driver looks"
            raise LakeError(f"lake {lake.url}", reason, _remedy(store))
    finally:
        _remove(store, folder, lake)
    _reached.add(checked)


def _put(store: Store, folder: str, count: int) -> set[str]:
    tokens = {uuid.uuid4().hex for _ in range(count)}
    for token in tokens:
        store.put(f"{folder}/driver/{token}.txt", token.encode())
    return tokens


def _copy_by_tasks(session: SparkSession, lake: LakeLocation, store: Store, folder: str) -> None:
    """Let each file be read by one task, which writes what it has read."""
    own = session.newSession()
    for name, value in _ONE_FILE_EACH.items():
        own.conf.set(name, value)
    try:
        own.read.text(store.url(f"{folder}/driver")).write.text(store.url(f"{folder}/executors"))
    except (PySparkException, Py4JJavaError) as error:
        raise LakeError(
            f"lake {lake.url}", f"an executor of the cluster does not reach it ({reason_of(error)})", _remedy(store)
        ) from error


def _copied(store: Store, folder: str) -> set[str]:
    keys = [file.key for file in store.entries(f"{folder}/executors")]
    texts = [store.get(key).decode() for key in keys if key.endswith(".txt")]
    return {line for text in texts for line in text.split()}


def _remedy(store: Store) -> str:
    if store.writes_are_durable:
        return f"give the executors credentials for the store, and a way to it ({_PAGE})"
    return (
        "mount the same folder at the same path on each machine, for the same user, or keep the lake in an object store"
        f" ({_PAGE})"
    )


def _remove(store: Store, folder: str, lake: LakeLocation) -> None:
    try:
        store.delete_all(folder)
    except OSError as error:
        reason = f"the driver can't remove what executors write there ({error.strerror or error})"
        raise LakeError(f"lake {lake.url}", reason, _remedy(store)) from None


@contextmanager
def _ends_without_executors(session: SparkSession, wait_s: float) -> Iterator[None]:
    """End the block's jobs if no executor has come after `wait_s`: Spark itself would wait for ever."""
    context: Any = session.sparkContext
    group, done, nobody = f"lakeproof {uuid.uuid4().hex}", Event(), Event()

    def watch() -> None:
        if not done.wait(wait_s) and not has_executors(session):
            nobody.set()
            while not done.wait(_POLL_S):
                with suppress(Py4JError, OSError):
                    context.cancelJobGroup(group)

    watcher = Thread(target=watch, name="lakeproof-executors", daemon=True)
    context.setJobGroup(group, "lakeproof looks whether executors reach the lake")
    watcher.start()
    try:
        yield
    except (LakeproofError, PySparkException, Py4JError):
        if nobody.is_set():
            raise TransientError(
                f"Spark's cluster {context.master}",
                f"it has given no executor within {wait_s:.0f} s",
                "see that it has free cores, and the memory of spark.executor.memory, and that executors reach the driver",
            ) from None
        raise
    finally:
        done.set()
        watcher.join()
        for name in ("spark.jobGroup.id", "spark.job.description"):
            context.setLocalProperty(name, None)


def has_executors(session: SparkSession) -> bool:
    """True if the driver knows of another process that runs tasks."""
    context: Any = session.sparkContext
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) > 1  # noqa: SLF001  no public name in Python
