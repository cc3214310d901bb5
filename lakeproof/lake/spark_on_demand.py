"""Spark on demand: a session that starts when the first table needs one, and a table's own session.

Building a session does not belong here (`session`), nor deciding which table needs one (`lakeproof.lake.cycle`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AnySpark: TypeAlias = "SparkSession | SparkOnDemand"


class SparkOnDemand:
    """A Spark session that starts when it is first asked for; any thread may ask.

    `start` starts it, and raises DefiniteError if it does not start. `everywhere`: every table's work goes to it, as on a
    cluster.
    """

    def __init__(self, start: Callable[[], SparkSession], *, everywhere: bool = False) -> None:
        self._start = start
        self._session: SparkSession | None = None
        self._hear: list[Callable[[SparkSession], None]] = []
        self._lock = RLock()
        self.everywhere = everywhere

    @classmethod
    def of(cls, spark: SparkSession | SparkOnDemand) -> SparkOnDemand:
        """Return the same for a session that runs."""
        if isinstance(spark, SparkOnDemand):
            return spark
        from lakeproof.config.spark import is_local

        session = spark
        given = cls(lambda: session, everywhere=not is_local(session.sparkContext.master))
        given.get()
        return given

    def get(self) -> SparkSession:
        """Return the session, which starts now if nobody has asked before."""
        with self._lock:
            if self._session is None:
                self._session = self._start()
                for hear in self._hear:
                    hear(self._session)
            return self._session

    @property
    def started(self) -> SparkSession | None:
        """The session if it runs."""
        return self._session

    @contextmanager
    def heard_by(self, hear: Callable[[SparkSession], None]) -> Iterator[None]:
        """Call `hear` with the session, now if it runs, else if it starts while the block runs."""
        with self._lock:
            self._hear.append(hear)
            session = self._session
        try:
            if session is not None:
                hear(session)
            yield
        finally:
            self._hear.remove(hear)

    def own(self) -> SparkOnDemand:
        """Return a session of the caller's own, whose settings are nobody else's: it starts when it is asked for."""
        return SparkOnDemand(lambda: self.get().newSession(), everywhere=self.everywhere)

    def forget(self) -> SparkSession | None:
        """Return the session that ran, for whoever stops it; the next one that asks gets a new one."""
        with self._lock:
            session, self._session = self._session, None
            return session
