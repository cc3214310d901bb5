"""A lost driver: work with Spark that names it as one, whether a session can still be used, and the session's end.

The end of the driver's process is in `driver_end.py`, the start of a session in `session.py`. Nothing here imports Spark:
most work starts none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakeproof.config.location import LakeLocation
from lakeproof.errors import LakeproofError, TransientError
from lakeproof.lake.spark.driver_end import GOING_S, LAST_BREATH_S, how_ended
from lakeproof.lake.spark.error_classes import java_errors, spark_errors
from lakeproof.lake.spark_on_demand import SparkOnDemand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The message of a call while the driver is ending.
_GOING = "SparkContext was shut down"
_NO_MEMORY = ("java.lang.OutOfMemoryError", "SparkOutOfMemoryError", "UNABLE_TO_ACQUIRE_MEMORY")


class DriverLostError(TransientError):
    """Spark's driver has ended, or has no memory left: the session can no longer be used."""


@contextmanager
def at_work(spark: SparkSession | SparkOnDemand, lake: LakeLocation) -> Iterator[None]:
    """Check the executors once for each session and lake, and name a lost driver as one (`driver_lives`), for the block."""
    on_demand = SparkOnDemand.of(spark)

    def check(session: SparkSession) -> None:
        from lakeproof.lake.spark.executors import check_executors

        check_executors(session, lake)

    with driver_lives(on_demand), on_demand.heard_by(check):
        yield


@contextmanager
def driver_lives(spark: SparkSession | SparkOnDemand) -> Iterator[None]:
    """Turn any error that a lost driver, or one out of memory, causes in the block into DriverLostError."""
    memory, on_demand = "not known", SparkOnDemand.of(spark)

    def look(session: SparkSession) -> None:
        nonlocal memory
        memory = str(session.sparkContext.getConf().get("spark.driver.memory", "Spark's default"))

    try:
        with on_demand.heard_by(look):
            yield
    except LakeproofError:
        raise
    except Exception as error:
        started = on_demand.started
        reason = None if started is None else why_lost(started, error)
        if reason is None:
            raise
        end = how_ended(started)
        if end is not None and end.asked:
            raise DriverLostError("Spark's driver", reason, "nothing is lost; run it again") from None
        raise DriverLostError(
            "Spark's driver",
            f"{reason} (spark.driver_memory is {memory})",
            "run it again; if it happens again raise spark.driver_memory, or lower compaction.cycle_rows or"
            " compaction.threads",
        ) from None


def stop_session(session: SparkSession) -> None:
    """End a session, also one whose driver has ended before."""
    try:
        session.stop()
    except spark_errors(OSError):
        if how_ended(session, LAST_BREATH_S) is None:
            raise


def why_lost(session: SparkSession, error: BaseException) -> str | None:
    """Return why the session can no longer be used, judging by this error; None if it still can."""
    from_java = isinstance(error, java_errors())
    broken = isinstance(error, spark_errors(OSError, EOFError)) and not from_java
    # Wait only if the error may come from a broken connection.
    end = how_ended(session, LAST_BREATH_S if broken else 0.0)
    if end is not None:
        return end.reason
    if from_java and any(name in str(error) for name in _NO_MEMORY):
        return "it has no memory left"
    if (from_java and _GOING in str(error)) or ((from_java or broken) and _is_stopped(session)):
        # A driver that is asked to end stops Spark first: how its process ends says who ended it.
        end = how_ended(session, GOING_S)
        return "it was shut down, most often for want of memory" if end is None else end.reason
    return None


def _is_stopped(session: SparkSession) -> bool:
    """True if Spark has ended in a driver that still runs."""
    context: Any = getattr(session.sparkContext, "_jsc", None)
    try:
        return context is not None and bool(context.sc().isStopped())
    except spark_errors(OSError, EOFError):
        return True
