"""Spark's driver: the environment that it starts in, how its process ended, a driver that is lost, and a session's end.

The session's settings belong to `session.py`; what follows for a table or a command, to the callers. Nothing here imports
Spark: most work starts none. An installation without it, and a command that needs none, ask for the classes of its errors in
an `except` clause, which is evaluated only if something was raised.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import TYPE_CHECKING, Any, TypeAlias

from lakeproof.config.location import LakeLocation
from lakeproof.errors import LakeproofError, TransientError
from lakeproof.lake.spark_on_demand import SparkOnDemand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Classes: TypeAlias = tuple[type[BaseException], ...]


def spark_errors(*others: type[BaseException]) -> Classes:
    """Return the classes of all errors of Spark and its JVM, and these `others`."""
    if "pyspark" not in sys.modules:
        return others
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError, *others)


def java_errors(*others: type[BaseException]) -> Classes:
    """Return the classes of errors that come out of the JVM, and these `others`."""
    if "pyspark" not in sys.modules:
        return others
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JJavaError, *others)


def connection_errors(*others: type[BaseException]) -> Classes:
    """Return the classes of errors of the connection to the JVM, and these `others`."""
    if "pyspark" not in sys.modules:
        return others
    from py4j.protocol import Py4JNetworkError

    return (Py4JNetworkError, *others)


_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
# Lines of the JVM itself about modules that Spark asks for; nobody can act on them.
_NOISE = ("WARNING: ", "Using Spark's default log4j profile", "Setting default log level", "To adjust logging level")
_LINES_KEPT = 20
# PySpark logs the trace of a refused query here, beside the error that becomes one line of lakeproof's.
_OF_QUERIES = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_STDERR = 2
# The setting and the variable that name the folder for shuffles and kept rows.
SCRATCH, SCRATCH_VARIABLE = "spark.local.dir", "SPARK_LOCAL_DIRS"


def log_option() -> str:
    """Return the JVM's option for its log; none if Spark's own configuration folder configures the log."""
    folder = os.environ.get("SPARK_CONF_DIR")
    if folder and (Path(folder) / "log4j2.properties").exists():
        return ""
    return f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"


def scratch_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the setting for a folder that only this user reads: shuffles and kept rows are written there.

    Nothing if the configuration or the environment names one. The folder goes with this process.
    """
    if SCRATCH in conf or SCRATCH_VARIABLE in os.environ:
        return {}
    return {SCRATCH: _scratch_folder()}


@cache
def _scratch_folder() -> str:
    """Make the folder: one for this process, since a JVM stays with the first that it was given."""
    folder = tempfile.mkdtemp(prefix="lakeproof-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextmanager
def without(variables: Collection[str]) -> Iterator[None]:
    """Take variables out of the environment for as long as the block runs: what is started in it does not inherit them."""
    taken = {name: os.environ.pop(name) for name in variables if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(taken)


@contextmanager
def filtered_stderr() -> Iterator[deque[str]]:
    """Let what is started in the block write to a pipe that passes all but noise on to stderr; gives the last lines.

    A started process keeps the pipe for its life; a thread of this process reads it.
    """
    last: deque[str] = deque(maxlen=_LINES_KEPT)
    ours = os.dup(_STDERR)
    read_end, write_end = os.pipe()
    threading.Thread(target=_pass_on, args=(read_end, ours, last), name="lakeproof-stderr", daemon=True).start()
    os.dup2(write_end, _STDERR)
    os.close(write_end)
    try:
        yield last
    finally:
        os.dup2(ours, _STDERR)


def _pass_on(read_end: int, ours: int, last: deque[str]) -> None:
    with os.fdopen(read_end, "rb") as lines:
        for line in lines:
            text = line.decode("utf-8", errors="replace")
            if not text.startswith(_NOISE):
                last.append(text.rstrip())
                os.write(ours, line)
    os.close(ours)


# A shell's and the JVM's own way of naming the signal that ended a process.
_BY_SIGNAL = 128
_FROM_OUTSIDE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_CRASHED = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
# Processes that the kernel ended for want of memory: of this machine, and of this container.
_OOM_KILLS = (Path("/proc/vmstat"), Path("/sys/fs/cgroup/memory.events"))
_NO_MEMORY = "OutOfMemoryError"
# A connection may be seen to break before the process is seen to have ended.
LAST_BREATH_S = 5.0
# Spark's own end, with files to remove, may take a driver so long; one that was asked to end ends then.
GOING_S = 10.0


@dataclass(frozen=True, slots=True)
class DriverEnd:
    """The reason why a driver's process has ended.

    `asked`: somebody, or the system, asked it to end, so nothing that it was doing is at fault. `silent`: it was killed, and
    nothing says why.
    """

    reason: str
    asked: bool = False
    silent: bool = False


@dataclass(slots=True)
class _Started:
    """What is kept of the driver that this process has started: its memory, its output's last lines, the count by then.

    `ended_here`: this process has ended it.
    """

    memory: str = "not known"
    lines: Sequence[str] = ()
    oom_kills: tuple[int, ...] = ()
    ended_here: bool = False


_started = _Started()


def driver_started(memory: str, lines: Sequence[str]) -> None:
    """Keep what says later how the driver ended, which has so much `memory`; `lines` goes on getting its last lines."""
    _started.memory, _started.lines = memory, lines
    _started.oom_kills, _started.ended_here = _oom_kills(), False
    logging.getLogger().addFilter(_is_not_of_py4j)
    # Imported here because it imports PySpark.
    from pyspark.logger import PySparkLogger

    for name in _OF_QUERIES:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """False for what Py4J logs as nobody's: a trace for each call that a lost driver does not answer, beside its error."""
    return Path(record.pathname).parent.name != "py4j"


def end_now(session: SparkSession) -> None:
    """Kill the session's driver: whoever waits for it gets an error at once, and nothing counts against what it did."""
    process = _process(session)
    if process is not None:
        _started.ended_here = True
        process.kill()


def how_ended(session: SparkSession | None = None, wait_s: float = 0.0) -> DriverEnd | None:
    """Return how the process of the session's driver ended, None if it lives or is none of ours.

    Without a session, of the one that this process has.
    """
    process = _process(session)
    if process is None:
        return None
    try:
        status = process.wait(wait_s)
    except TimeoutExpired:
        return None
    return _end(status)


def _process(session: SparkSession | None) -> Popen[bytes] | None:
    process: Popen[bytes] | None = getattr(_gateway(session), "proc", None)
    return process


def _gateway(session: SparkSession | None) -> Any:
    """Return the way to the JVM of a session, or of the one that this process has; None if it has none."""
    context: Any = None if session is None else session.sparkContext
    if context is None:
        context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return getattr(context, "_gateway", None)


def _end(status: int) -> DriverEnd:
    if _started.ended_here:
        return DriverEnd("its process was ended as asked", asked=True)
    if any(_NO_MEMORY in line for line in _started.lines):
        return DriverEnd(f"its process has ended: it had no memory left ({_NO_MEMORY} in its log)")
    number = -status if status < 0 else status - _BY_SIGNAL
    if number not in {s.value for s in signal.Signals}:
        return DriverEnd(f"its process has ended with status {status}")
    name = f"signal {number} ({signal.Signals(number).name})"
    if number in _FROM_OUTSIDE:
        return DriverEnd(f"its process was ended from outside, by {name}", asked=True)
    if number in _CRASHED:
        return DriverEnd(f"its process has crashed, by {name}; a file hs_err_pid….log may say more")
    if number != signal.SIGKILL:
        return DriverEnd(f"its process was ended by {name}")
    if any(now > then for then, now in zip(_started.oom_kills, _oom_kills(), strict=False)):
        return DriverEnd(
            f"its process was killed, by {name}, and the kernel has killed for want of memory since it began"
        )
    reason = f"its process was killed, by {name}: by somebody, or for want of memory"
    return DriverEnd(reason, silent=True)


def _oom_kills() -> tuple[int, ...]:
    """Return how many processes the kernel has ended for want of memory, by each count that can be read here."""
    return tuple(_count(file) for file in _OOM_KILLS)


def _count(file: Path) -> int:
    try:
        lines = file.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


# The message of a call while the driver is ending.
_GOING = "SparkContext was shut down"
_OUT_OF_MEMORY = ("java.lang.OutOfMemoryError", "SparkOutOfMemoryError", "UNABLE_TO_ACQUIRE_MEMORY")


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
    on_demand = SparkOnDemand.of(spark)
    try:
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
            f"{reason} (spark.driver_memory is {_started.memory})",
            "run it again; if it happens again raise spark.driver_memory, or lower compaction.cycle_rows or"
            " compaction.threads",
        ) from None


def stop_session(session: SparkSession) -> None:
    """End a session, also one whose driver has ended before; this process can start another one."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM", RuntimeWarning)
            session.stop()
    except spark_errors(OSError):
        if how_ended(session, LAST_BREATH_S) is None:
            raise
        # PySpark has stopped halfway, and would give out the dead session and its JVM again.
        session.sparkContext.stop()
        context: Any = sys.modules["pyspark"].SparkContext
        if context._gateway is _gateway(session):  # noqa: SLF001  PySpark has no public name for its JVM
            context._gateway = context._jvm = None  # noqa: SLF001  as above


def why_lost(session: SparkSession, error: BaseException) -> str | None:
    """Return why the session can no longer be used, judging by this error; None if it still can."""
    from_java = isinstance(error, java_errors())
    broken = isinstance(error, spark_errors(OSError, EOFError)) and not from_java
    # Wait only if the error may come from a broken connection.
    end = how_ended(session, LAST_BREATH_S if broken else 0.0)
    if end is not None:
        return end.reason
    if from_java and any(name in str(error) for name in _OUT_OF_MEMORY):
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
