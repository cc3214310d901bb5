"""A driver that is gone, or has no memory left, is one error with a remedy, whichever call saw it."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from lakeproof.errors import TableError
from lakeproof.lake.spark import driver as driver_module
from lakeproof.lake.spark.driver import (
    DriverLostError,
    driver_lives,
    driver_started,
    filtered_stderr,
    how_ended,
    stop_session,
    why_lost,
)


def session(process: subprocess.Popen[bytes] | None, stop: Any = None) -> Any:
    """Return a session with only the parts that are called."""
    context = SimpleNamespace(
        master="local[1]",
        _gateway=SimpleNamespace(proc=process),
        stop=lambda: None,
    )
    return SimpleNamespace(sparkContext=context, stop=stop)


@pytest.fixture
def ended() -> subprocess.Popen[bytes]:
    """A process that is over, as a JVM that has died."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process


class _GoesOn(subprocess.Popen[bytes]):
    """A process of which any time that it is waited for passes at once."""

    def wait(self, timeout: float | None = None) -> int:
        return super().wait(None if timeout is None else 0.01)


@pytest.fixture
def alive() -> Iterator[subprocess.Popen[bytes]]:
    """Return a driver that goes on running."""
    process = _GoesOn([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.communicate()


@pytest.mark.parametrize(
    "error", [Py4JError("x"), Py4JNetworkError("x"), ConnectionRefusedError(), EOFError(), PySparkException("x")]
)
def test_every_error_of_a_dead_driver_becomes_one(ended: subprocess.Popen[bytes], error: Exception) -> None:
    """No Java or Python stack is chained to it."""
    driver_started("2g", [])
    message = r"has ended.*driver_memory is 2g.*raise spark.driver_memory"
    with pytest.raises(DriverLostError, match=message) as lost, driver_lives(session(ended)):
        raise error
    assert lost.value.__suppress_context__


def test_a_driver_without_memory_is_the_same_error(alive: subprocess.Popen[bytes]) -> None:
    """Such a driver lives on, but is useless."""
    with pytest.raises(DriverLostError, match="no memory left"), driver_lives(session(alive)):
        raise PySparkException("Job aborted: java.lang.OutOfMemoryError: Java heap space")


def test_a_driver_on_its_way_out_is_the_same_error(alive: subprocess.Popen[bytes]) -> None:
    """A thread of its own hears of the end before the process is over."""
    with pytest.raises(DriverLostError, match="was shut down"), driver_lives(session(alive)):
        raise PySparkException("Job 114 cancelled because SparkContext was shut down")


@pytest.mark.parametrize("error", [Py4JError("x"), PySparkException("x"), OSError("x"), KeyError("x")])
def test_other_errors_of_a_driver_that_lives_stay_what_they_are(
    alive: subprocess.Popen[bytes], error: Exception
) -> None:
    """Errors that a broken connection could have caused are not reinterpreted while the driver lives."""
    with pytest.raises(type(error)) as raised, driver_lives(session(alive)):
        raise error
    assert raised.value is error


def test_our_own_errors_stay_what_they_are(ended: subprocess.Popen[bytes]) -> None:
    """A table that is refused is refused."""
    with pytest.raises(TableError), driver_lives(session(ended)):
        raise TableError("t", "r", "m")


def test_a_session_whose_driver_has_ended_can_be_stopped(
    ended: subprocess.Popen[bytes], alive: subprocess.Popen[bytes]
) -> None:
    """The driver's end is not reported again; a living driver's error is."""

    def stop() -> None:
        raise ConnectionRefusedError

    stop_session(session(ended, stop))
    with pytest.raises(ConnectionRefusedError):
        stop_session(session(alive, stop))


def killed(number: int) -> subprocess.Popen[bytes]:
    """A process that a signal has ended, also where the tests were started to ignore it (by `nohup`)."""
    obey = "" if number == signal.SIGKILL else f"signal.signal({number}, signal.SIG_DFL); "
    process = subprocess.Popen([sys.executable, "-c", f"import os, signal; {obey}os.kill(os.getpid(), {number})"])
    process.wait()
    return process


def exited(status: int) -> subprocess.Popen[bytes]:
    """A process that has ended by itself: a JVM that is asked to end gives 128 and the signal as its status."""
    process = subprocess.Popen([sys.executable, "-c", f"import os; os._exit({status})"])
    process.wait()
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_driver_that_was_asked_to_end_is_not_said_to_want_memory(number: signal.Signals) -> None:
    """Its exit status names the signal, whether the signal or the JVM itself ended it."""
    for process in (killed(number), exited(128 + number)):
        with pytest.raises(DriverLostError) as lost, driver_lives(session(process)):
            raise Py4JNetworkError("x")
        assert str(lost.value) == (
            f"Spark's driver: its process was ended from outside, by signal {number.value} ({number.name});"
            " nothing is lost; run it again"
        )


def test_a_driver_that_is_still_going_down_is_not_said_to_want_memory() -> None:
    """Seen once: Spark was stopped before the process ended, and tables that were being written got a failed attempt."""
    going = subprocess.Popen([sys.executable, "-c", "import os, time; time.sleep(1); os._exit(143)"])
    lost = session(going)
    why = why_lost(lost, PySparkException(driver_module._GOING))
    assert why == "its process was ended from outside, by signal 15 (SIGTERM)"
    end = how_ended(lost)
    assert end is not None
    assert end.asked


def test_a_driver_that_was_killed_is_named_by_its_signal() -> None:
    """Memory is named as one of two causes, unless the kernel says that it killed."""
    end = how_ended(session(killed(signal.SIGKILL)))
    assert end is not None
    assert end.silent
    assert end.reason == "its process was killed, by signal 9 (SIGKILL): by somebody, or for want of memory"
    crashed = how_ended(session(exited(134)))
    assert crashed is not None
    assert "crashed, by signal 6 (SIGABRT)" in crashed.reason
    ended_itself = how_ended(session(exited(1)))
    assert ended_itself is not None
    assert ended_itself.reason == "its process has ended with status 1"


def test_a_driver_whose_log_has_an_error_of_memory_is_named_by_it() -> None:
    """The last lines of its output are kept; a status alone would not say it."""
    driver_started("1g", ["18:00:00 ERROR Executor: java.lang.OutOfMemoryError: Java heap space"])
    try:
        end = how_ended(session(exited(3)))
    finally:
        driver_started("1g", [])
    assert end is not None
    assert end.reason == "its process has ended: it had no memory left (OutOfMemoryError in its log)"


def test_a_start_leaves_no_descriptor_open() -> None:
    """A process that follows for months may start many drivers, and has a thousand descriptors."""
    gc.collect()
    before = {file.name for file in Path("/proc/self/fd").iterdir()}
    with filtered_stderr() as lines:
        os.write(2, b"hello\n")
    for thread in threading.enumerate():
        if thread.name == "lakeproof-stderr":
            thread.join(90)
    assert list(lines) == ["hello"]
    # What an earlier test has left may be closed meanwhile.
    assert not {file.name for file in Path("/proc/self/fd").iterdir()} - before


def test_a_refused_query_is_logged_by_nobody_else() -> None:
    """PySpark would write the whole trace of Java's error to stderr, beside the line that a person reads."""
    driver_started("1g", [])
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        assert not PySparkLogger.getLogger(name).isEnabledFor(logging.ERROR)
