"""Counts the rows that scans of files have given, by the metrics of the plans of frames that were evaluated.

A frame that is evaluated a second time counts once: its plan has the metrics of the last time. A plan that was kept in
memory has those of the evaluation that filled it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
        jvm = evaluated.sparkSession._jvm  # noqa: SLF001  no public name for it
        waiting = [evaluated._jdf.queryExecution().executedPlan()]  # noqa: SLF001  no public name for the plan
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
                waiting += list(jvm.scala.jdk.javaapi.CollectionConverters.asJava(node.children()))


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
