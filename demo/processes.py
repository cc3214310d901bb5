"""Child processes that end with the demonstration, however it ends, and the detection of an earlier one's left-overs.

What runs in them belongs to `demo.run`. Three lines of defence: an orderly stop; PR_SET_PDEATHSIG, for a demonstration
that was killed; and a mark in every child's environment by which the next start finds what is still there.
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
    patient: bool


@dataclass
class Children:
    """The processes of one demonstration; `state` is its folder, and the mark.

    Start children from the main thread only: the kernel sends PR_SET_PDEATHSIG when the *thread* that forked ends.
    """

    state: Path
    # Dagster's daemon ends its code server and runs in order within this; a drain makes its last segment durable.
    grace_s: float = 20.0
    _running: list[_Child] = field(default_factory=list)

    def start(
        self,
        name: str,
        command: list[str],
        environment: Mapping[str, str],
        *,
        patient: bool = True,
        visible: bool = False,
    ) -> subprocess.Popen[bytes]:
        """Start `command` in a session of its own, its output in `<state>/<name>.log`.

        A `visible` child's stdout is ours. A `patient` child has `grace_s` seconds from SIGTERM to its end; the others
        are killed.
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
        self._running.append(_Child(name, process, patient))
        return process

    def ended(self, but: str | None = None) -> str | None:
        """The name of a child that is not running any more, None while all are; `but` may have ended."""
        names = (child.name for child in self._running if child.process.poll() is not None)
        return next((name for name in names if name != but), None)

    def log_tail(self, name: str) -> str:
        """The last lines that child `name` wrote."""
        text = (self.state / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.strip().splitlines()[-12:])

    def await_one(self, name: str) -> None:
        """Wait `grace_s` seconds for the child `name`, which ends by itself; end it then."""
        for child in self._running:
            if child.name == name:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.process.wait(self.grace_s)
        self.stop_one(name)

    def stop_one(self, name: str) -> None:
        """End the child `name`, and wait for it; the others go on."""
        self._end([child for child in self._running if child.name == name])

    def stop(self) -> None:
        """End all, the newest first; none is left when this returns."""
        self._end(self._running[::-1])
        end(marked(self.state))

    def _end(self, children: list[_Child]) -> None:
        for child in children:
            _signal_group(child.process.pid, signal.SIGTERM if child.patient else signal.SIGKILL)
        deadline = time.monotonic() + self.grace_s
        for child in children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0.0, deadline - time.monotonic()))
            # The group may outlive its leader: a run worker that is still writing its last segment.
            _await_group(child.process.pid, deadline)
            _signal_group(child.process.pid, signal.SIGKILL)
            child.process.wait()
            self._running.remove(child)


def marked(state: Path) -> list[int]:
    """The processes, by their ids, that a demonstration with this `state` started and that still run."""
    wanted = f"{_MARK}={state}".encode()
    found = []
    for pid in _pids():
        # Gone meanwhile, or someone else's: not ours either way.
        with contextlib.suppress(OSError):
            if pid != os.getpid() and wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def end(pids: Iterable[int]) -> None:
    """Kill these processes and wait until they are gone."""
    waiting = list(pids)
    for pid in waiting:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _KILLED_S_MAX
    while time.monotonic() < deadline and any(_alive(pid) for pid in waiting):
        time.sleep(0.05)


def _signal_group(group: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, what)


def _await_group(group: int, deadline: float) -> None:
    while time.monotonic() < deadline and any(_in_group(pid, group) for pid in _pids()):
        time.sleep(0.05)


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _stat(pid: int) -> list[str]:
    # After the command in parentheses, which may hold anything: state, parent, group, …
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ["Z", "0", "0"]


def _alive(pid: int) -> bool:
    # A zombie is gone as far as files and ports go; reaping it is its parent's business.
    return _stat(pid)[0] != "Z"


def _in_group(pid: int, group: int) -> bool:
    stat = _stat(pid)
    return stat[0] != "Z" and int(stat[2]) == group


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
