"""Spark on demand: a session that starts when the first table needs one, and a table's own session.

Building a session does not belong here (`session`), nor deciding which table needs one (`lakeproof.lake.cycle`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, TypeAlias

from lakeproof.errors import DefiniteError, TableError
from lakeproof.names import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AnySpark: TypeAlias = "SparkSession | SparkOnDemand"


class NoSparkError(DefiniteError):
    """Spark can't be started here. No table is at fault; on another machine the lake is the same."""

    def about(self, tables: Mapping[TableName, str]) -> NoSparkError:
        """Return the error about tables that Spark has to write, each with the reason."""
        if len(tables) == 1:
            ((table, why),) = tables.items()
            reason = f"Spark has to write it ({why}), and {self.thing}: {self.reason}"
            return NoSparkError(f"table {table}", reason, self.remedy)
        listed = "; ".join(f"{table}: {why}" for table, why in tables.items())
        reason = f"Spark has to write them ({listed}), and {self.thing}: {self.reason}"
        return NoSparkError(f"{len(tables):,} tables", reason, self.remedy)


class SparkOnDemand:
    """A Spark session that starts when it is first asked for; any thread may ask.

    `start` starts it, and raises DefiniteError if it does not start: whoever asks gets NoSparkError. `everywhere`: every
    table's work goes to it, as on a cluster. `end` ends it, if it may be given back.
    """

    def __init__(
        self,
        start: Callable[[], SparkSession],
        *,
        everywhere: bool = False,
        end: Callable[[SparkSession], None] | None = None,
    ) -> None:
        self._start, self._end = start, end
        self._users, self._used_s = 0, 0.0
        self._session: SparkSession | None = None
        self._hear: list[Callable[[SparkSession], None]] = []
        self._lock = RLock()
        self.everywhere = everywhere

    @classmethod
    def of(cls, spark: SparkSession | SparkOnDemand) -> SparkOnDemand:
        """Return the same for a session that runs."""
        if isinstance(spark, SparkOnDemand):
            return spark
        from lakeproof.config.section.spark import is_local

        session = spark
        given = cls(lambda: session, everywhere=not is_local(session.sparkContext.master))
        given.get()
        return given

    def get(self) -> SparkSession:
        """Return the session, which starts now if nobody has asked before."""
        with self._lock:
            if self._session is None:
                self._session = self._started()
                for hear in self._hear:
                    hear(self._session)
            self._used_s = time.monotonic()
            return self._session

    def _started(self) -> SparkSession:
        try:
            return self._start()
        except (TableError, NoSparkError):
            raise
        except DefiniteError as error:
            raise NoSparkError(error.thing, error.reason, error.remedy) from error
        except ModuleNotFoundError as error:
            reason, remedy = f"{error.name} is not installed", "run `pip install 'lakeproof[spark]'`"
            raise NoSparkError("Spark", reason, f"{remedy}, or this command on a machine that has it") from None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the session from being given back while the block runs."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                self._used_s = time.monotonic()

    def give_back(self, idle_s: float) -> bool:
        """End the session if nobody uses it, or has asked for it within `idle_s`; the next one that asks gets a new one."""
        with self._lock:
            session, idle = self._session, time.monotonic() - self._used_s >= idle_s
            if session is None or self._end is None or self._users or not idle:
                return False
            self._session = None
            self._end(session)
            return True

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
