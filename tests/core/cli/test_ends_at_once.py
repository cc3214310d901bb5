"""A second Ctrl-C ends a command at once, whatever its threads wait for, with the driver that it has started."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from lakeproof.lake.spark.driver import driver_started, end_now, how_ended

# A pool like a cycle's waits for its thread, which waits for a job of Spark's.
_COMMAND = """
import sys, time
from lakeproof.cli.interruption import Interruption
from lakeproof.concurrently import few_at_a_time
from lakeproof.events import Stop

stop = Stop()

def table(_name):
    print("at work", flush=True)
    stop.wait(60)
    print("asked", flush=True)
    time.sleep(60)

with Interruption(stop):
    list(few_at_a_time(["a"], table, 1))
"""


def _at_work(code: str) -> subprocess.Popen[str]:
    """Return a process once it is at work."""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "at work\n"
    return process


def test_a_second_signal_ends_a_command_whose_threads_are_in_the_middle_of_a_table() -> None:
    """It took as long as the table did: a pool of threads was waited for."""
    with _at_work(_COMMAND) as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGINT)
        # Of two signals that come before the process runs again, the kernel keeps one.
        assert process.stdout.readline() == "asked\n"
        assert process.poll() is None, "once asked, it goes on to its next safe point"
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        errors = process.communicate(timeout=50)[1]
    assert process.returncode == 3
    assert "lakeproof: interrupted" in errors
    # The table alone takes 60.
    assert time.monotonic() - began < 30


# Another thread gets the signals, so the main thread's wait goes on: as it does if one comes just before it begins.
_WAITS = """
import signal, time
from lakeproof.cli.interruption import Interruption
from lakeproof.events import Stop

with Interruption(Stop()):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    print("at work", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("read", [True, False])
def test_signals_count_while_the_main_thread_does_not_look_at_them(*, read: bool) -> None:
    """A second signal was lost if it came between the main thread's look and its wait; nobody has to `read` the errors."""
    with _at_work(_WAITS) as process:
        assert process.stderr is not None
        if not read:
            process.stderr.close()
        began = time.monotonic()
        while process.poll() is None and time.monotonic() - began < 50:
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        errors = process.stderr.read() if read else "lakeproof: interrupted"
    assert process.returncode == 3
    assert "lakeproof: interrupted" in errors
    assert time.monotonic() - began < 30


@pytest.fixture
def driver() -> Any:
    """As much of a session as is asked for, with a driver that runs."""
    process = subprocess.Popen(["sleep", "60"])
    driver_started("1g", [])
    yield SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=process)))
    process.kill()
    process.wait()
    driver_started("1g", [])


def test_the_driver_ends_with_it_and_no_table_is_blamed(driver: Any) -> None:
    """Whoever waits for the driver gets an error at once, which says that somebody asked for it."""
    assert how_ended(driver) is None
    end_now(driver)
    end = how_ended(driver, 5.0)
    assert end is not None
    assert end.asked
