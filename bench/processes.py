"""Measures processes and folders from outside: CPU and memory of a process with its descendants, bytes of files.

The choice of processes does not belong here. All is read from /proc, so a process counts from its first sample to its last:
what happens between its last sample and its end is lost.
"""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


class Tree:
    """A process and its descendants: `cpu_s` so far, and the peak of their memory by program.

    A process's peak is the kernel's own (VmHWM). With `shared` it is the greatest sum of a sample instead, in which each
    page counts once: the backends of a server have the same buffers.
    """

    def __init__(self, pid: int, *, shared: bool = False) -> None:
        self._pid, self._shared = pid, shared
        self._peaks: dict[int, tuple[str, float]] = {}
        self.cpu_s = 0.0
        self._peak_mb = 0.0

    def sample(self) -> None:
        """Read the processes that live now."""
        pids = _descendants(self._pid)
        # The time of children that have ended, and were waited for, is their parent's.
        self.cpu_s = max(self.cpu_s, sum(cpu_s(pid) for pid in pids))
        if self._shared:
            self._peak_mb = max(self._peak_mb, sum(_kilobytes(pid, "smaps_rollup", "Pss") for pid in pids) / 1024)
            return
        for pid in pids:
            peak = _kilobytes(pid, "status", "VmHWM") / 1024
            self._peaks[pid] = _program(pid), max(peak, self._peaks.get(pid, ("", 0.0))[1])

    @property
    def peak_mb(self) -> float:
        """The sum of the processes' peaks, which they may have reached at different times."""
        return self._peak_mb if self._shared else sum(peak for _, peak in self._peaks.values())

    @property
    def java_mb(self) -> float:
        """The part of `peak_mb` that is the JVM's."""
        return sum(peak for program, peak in self._peaks.values() if program == "java")

    def watch(self, ended: threading.Event, every_s: float) -> threading.Thread:
        """Sample in a thread until `ended`; returns the thread, which has started."""

        def keep_sampling() -> None:
            while not ended.wait(every_s):
                self.sample()

        thread = threading.Thread(target=keep_sampling)
        thread.start()
        return thread


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and of its children that have ended; 0 if it is gone."""
    fields = _stat(pid)
    return sum(map(int, fields[11:15])) / _TICKS if fields else 0.0


def disk_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder; a file with several names counts once."""
    sizes: dict[tuple[int, int], int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            # A file may be removed while the folder is read.
            with suppress(FileNotFoundError):
                status = os.lstat(os.path.join(parent, name))  # noqa: PTH118  a hundred thousand of them
                sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208  only names are needed
        if entry.isdigit() and (fields := _stat(int(entry))):
            children.setdefault(int(fields[1]), []).append(int(entry))
    pids, waiting = [], [root] if _stat(root) else []
    while waiting:
        pid = waiting.pop()
        pids.append(pid)
        waiting += children.get(pid, [])
    return pids


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the program's name, the state first; none if the process is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return []


def _program(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return ""


def _kilobytes(pid: int, file: str, name: str) -> int:
    with suppress(OSError):
        kilobytes = re.search(
            rf"^{name}:\s+(\d+)", Path(f"/proc/{pid}/{file}").read_text(encoding="utf-8"), re.MULTILINE
        )
        return int(kilobytes[1]) if kilobytes else 0
    return 0
