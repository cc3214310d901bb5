"""Spark's own plans and expressions over py4j: the session's JVM, Scala's sequences, and the rows that plans' scans gave.

The questions are in `lakeproof.views.incremental.plan_trees` and `lakeproof.proof.lake.jvm_functions`. No name inside Delta
is used, and nothing here evaluates rows. Spark is not imported here.

A frame that is evaluated a second time counts its scans once: its plan has the metrics of the last time. A plan that was
kept in memory has those of the evaluation that filled it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Jvm:
    """The session's JVM."""

    def __init__(self, session: SparkSession) -> None:
        self.java = cast("Any", session._jvm)
        self.jsession = cast("Any", session._jsparkSession)
        self.none = self.java.scala.Option.empty()
        # Spark asks for the thread's own session in many places; each Python thread has a JVM thread.
        self.java.org.apache.spark.sql.classic.SparkSession.setActiveSession(self.jsession)

    def seq(self, values: Iterable[Any]) -> Any:
        """Scala's Seq."""
        items = self.java.java.util.ArrayList()
        for value in values:
            items.add(value)
        return self.java.scala.jdk.javaapi.CollectionConverters.asScala(items).toSeq()


def items(seq: Any) -> list[Any]:
    """Return a Scala Seq's items.

    By their number: an iterator's end is an exception in the JVM, and PySpark asks of each whether it is one of some twenty
    kinds, by names of packages that the class loader looks for in all jars: for 12 to 50 ms a sequence.
    """
    return [seq.apply(number) for number in range(seq.size())]


_METRIC = "numOutputRows"


class ScannedRows:
    """The rows that were scanned so far, each scan once."""

    def __init__(self) -> None:
        self._scans = dict[int, int]()
        self.by_this_process = 0

    @property
    def rows(self) -> int:
        """Their number."""
        return sum(self._scans.values()) + self.by_this_process

    def add(self, frame: DataFrame) -> None:
        """Add the scans of a frame that was evaluated."""
        evaluated: Any = frame
        jvm = evaluated.sparkSession._jvm
        waiting = [evaluated._jdf.queryExecution().executedPlan()]
        while waiting:
            node = waiting.pop()
            kind = str(node.getClass().getSimpleName())
            if kind == "AdaptiveSparkPlanExec":
                waiting.append(node.executedPlan())
            elif kind.endswith("QueryStageExec"):
                waiting.append(node.plan())
            elif kind == "InMemoryTableScanExec":
                waiting.append(node.relation().cacheBuilder().cachedPlan())
            elif kind == "FileSourceScanExec":
                metric = node.metrics().get(_METRIC)
                identity = int(jvm.java.lang.System.identityHashCode(node))
                self._scans[identity] = int(metric.get().value()) if metric.isDefined() else 0
            else:
                waiting += items(node.children())


_COUNT: ContextVar[ScannedRows | None] = ContextVar("lakeproof_scanned_rows", default=None)


@contextmanager
def counting() -> Iterator[ScannedRows]:
    """Count the scans of the frames that are noted in the block."""
    count = ScannedRows()
    token = _COUNT.set(count)
    try:
        yield count
    finally:
        _COUNT.reset(token)


def note_scans(frame: DataFrame) -> None:
    """Add an evaluated frame's scans to the count of the block that one is in, if any."""
    count = _COUNT.get()
    if count is not None:
        count.add(frame)


def note_rows(rows: int) -> None:
    """Add rows that this process has read without Spark."""
    count = _COUNT.get()
    if count is not None:
        count.by_this_process += rows
