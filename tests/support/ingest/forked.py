"""Processes that a test may stop or kill, forked from one that has everything imported and compiled: cheap to start.

What they do does not belong here (`drain_process.py`, `snapshot_process.py`, `typed_process.py`). A process of its own would
need 2 s of CPU before it began.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from multiprocessing.reduction import DupFd
from typing import Any, TextIO

from lakeproof.failpoints import Armed, watched

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([f"tests.support.ingest.{name}_process" for name in ("drain", "snapshot", "typed")])


class Forked:
    """A process at work, with the interface of `subprocess.Popen`, as far as tests ask for it."""

    def __init__(self, work: Callable[..., int], *given: Any, failpoint: str = "") -> None:
        ends = [os.pipe(), os.pipe()]
        self.stdout: TextIO = os.fdopen(ends[0][0], encoding="utf-8")
        self.stderr: TextIO = os.fdopen(ends[1][0], encoding="utf-8")
        for file in (self.stdout, self.stderr):
            weakref.finalize(self, file.close)
        # The server of forks has the environment of the first test that asked for one.
        child = (work, given, failpoint, dict(os.environ), [DupFd(end) for _, end in ends])
        self._process = CONTEXT.Process(target=_work, args=child)
        self._process.start()
        for _, end in ends:
            os.close(end)
        self.pid = int(self._process.pid or 0)
        self._read = ["", ""]
        self._readers: list[threading.Thread] = []

    @property
    def returncode(self) -> int | None:
        """The exit status; negative if a signal ended the process, None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit status, None while the process runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; return the exit status."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout or 0.0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end; return what was printed and not read yet, of both kinds."""
        if not self._readers:
            self._readers = [
                threading.Thread(target=self._read_all, args=(number, file), daemon=True)
                for number, file in enumerate((self.stdout, self.stderr))
            ]
            for reader in self._readers:
                reader.start()
        self.wait(timeout)
        for reader in self._readers:
            reader.join()
        return self._read[0], self._read[1]

    def _read_all(self, number: int, file: TextIO) -> None:
        self._read[number] = file.read()

    def send_signal(self, number: int) -> None:
        """Send a signal, if the process still runs."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End the process at once."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask the process to end."""
        self.send_signal(signal.SIGTERM)


def _work(
    work: Callable[..., int], given: tuple[Any, ...], failpoint: str, environment: dict[str, str], ends: list[Any]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for number, end in enumerate(ends, 1):
        own = end.detach()
        os.dup2(own, number)
        os.close(own)
    with watched(Armed.parse(failpoint)) if failpoint else nullcontext():
        status = work(*given)
    sys.exit(status)
