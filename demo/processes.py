"""Child processes that end with the demonstration, however it ends, and the left-overs of an earlier demonstration.

Three lines of defence: an orderly stop; PR_SET_PDEATHSIG in case the demonstration is killed; and a mark in every child's
environment, by which the next start finds processes that are still running. The commands that run in the processes do not
belong here (`demo.run`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_MARK = "LAKEPROOF_DEMO_STATE"
_KILLED_S_MAX = 10.0


@dataclass(slots=True)
class _Child:
    name: str
    process: subprocess.Popen[bytes]
    graceful: bool


@dataclass
class Children:
    """The processes of one demonstration; `state` is its folder, and the mark.

    Start children from the main thread only: the kernel sends PR_SET_PDEATHSIG when the *thread* that forked ends.
    """

    state: Path
    # In this time Dagster's daemon ends its code server and runs in order, and a drain makes its last segment durable.
    grace_s: float = 20.0
    _running: list[_Child] = field(default_factory=list)

    def start(
        self,
        name: str,
        command: list[str],
        environment: Mapping[str, str],
        *,
        graceful: bool = True,
        visible: bool = False,
    ) -> subprocess.Popen[bytes]:
        """Start `command` in its own session, its output in `<state>/<name>.log`.

        A `visible` child writes to our stdout. A `graceful` child gets SIGTERM and `grace_s` seconds to end, others SIGKILL.
        """
        with (self.state / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=None if visible else log,
                stderr=log if visible else subprocess.STDOUT,
                env={**environment, _MARK: str(self.state)},
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  (no thread has been started when this forks)
            )
        self._running.append(_Child(name, process, graceful))
        return process

    def ended(self, except_for: str | None = None) -> str | None:
        """Return the name of a child that has ended, None if all are running; `except_for` may have ended."""
        names = (child.name for child in self._running if child.process.poll() is not None)
        return next((name for name in names if name != except_for), None)

    def log_tail(self, name: str) -> str:
        """Return the last lines that child `name` wrote."""
        text = (self.state / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.strip().splitlines()[-12:])

    def wait_for(self, name: str) -> None:
        """Wait `grace_s` seconds for the child `name`, which should end by itself, then end it."""
        for child in self._running:
            if child.name == name:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.process.wait(self.grace_s)
        self.stop_one(name)

    def stop_one(self, name: str) -> None:
        """End the child `name` and wait for it; the others continue."""
        self._end([child for child in self._running if child.name == name])

    def stop(self) -> None:
        """End all children, newest first; none is left when this returns."""
        self._end(self._running[::-1])
        end(left_over_processes(self.state))

    def _end(self, children: list[_Child]) -> None:
        for child in children:
            _signal_group(child.process.pid, signal.SIGTERM if child.graceful else signal.SIGKILL)
        deadline = time.monotonic() + self.grace_s
        for child in children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0.0, deadline - time.monotonic()))
            # The group may outlive its leader: a run's process may still be writing its last segment.
            _wait_for_group(child.process.pid, deadline)
            _signal_group(child.process.pid, signal.SIGKILL)
            child.process.wait()
            self._running.remove(child)


def left_over_processes(state: Path) -> list[int]:
    """Return the ids of processes that a demonstration with this `state` has started and that are still running."""
    mark = f"{_MARK}={state}".encode()
    pids = []
    for pid in _pids():
        # The process has ended meanwhile, or belongs to another user: not ours either way.
        with contextlib.suppress(OSError):
            if pid != os.getpid() and mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                pids.append(pid)
    return pids


def end(pids: Iterable[int]) -> None:
    """Kill these processes and wait until they are gone."""
    waiting = list(pids)
    for pid in waiting:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _KILLED_S_MAX
    while time.monotonic() < deadline and any(_alive(pid) for pid in waiting):
        time.sleep(0.05)


def _signal_group(group: int, signum: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signum)


def _wait_for_group(group: int, deadline: float) -> None:
    while time.monotonic() < deadline and any(_in_group(pid, group) for pid in _pids()):
        time.sleep(0.05)


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _stat(pid: int) -> list[str]:
    # The fields after the command in parentheses, which may contain anything: state, parent, group, …
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ["Z", "0", "0"]


def _alive(pid: int) -> bool:
    # A zombie holds no files or ports any more; its parent has to reap it.
    return _stat(pid)[0] != "Z"


def _in_group(pid: int, group: int) -> bool:
    stat = _stat(pid)
    return stat[0] != "Z" and int(stat[2]) == group


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
