"""The demonstration's folder: used by one demonstration at a time, always fresh, cleared of a killed one's left-overs.

Writing files into it does not belong here (`demo.run`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from demo.processes import end, left_over_processes
from demo.server import unprivileged_user

_LOCK = "lock"
_SERVER_PREFIX = "lakeproof-demo-"


class DemoError(Exception):
    """The demonstration can't go on; `str()` is one line with the remedy."""


@dataclass
class State:
    """The folder `root`, and the cluster's folder `server`: it is elsewhere if PostgreSQL's user can't reach `root`.

    The lock keeps a second demonstration away for as long as this process lives.
    """

    root: Path
    server: Path
    _lock: TextIO

    @property
    def config(self) -> Path:
        """Return the path of the configuration that the demonstration writes."""
        return self.root / "lakeproof.yaml"

    @property
    def dagster_home(self) -> Path:
        """Return DAGSTER_HOME."""
        return self.root / "dagster"

    @property
    def end_of_drain(self) -> Path:
        """Return the file that asks the demonstration's own drain to end."""
        return self.root / "drain.end"

    def close(self) -> None:
        """Release the lock, so that the next demonstration can begin."""
        self._lock.close()

    def remove_server(self) -> None:
        """Remove the cluster; the lake, the runs and the logs stay for inspection until the next start."""
        shutil.rmtree(self.server, ignore_errors=True)


def open_state(root: Path) -> tuple[State, list[str]]:
    """Return a fresh folder at `root`, and messages about the left-overs of an earlier demonstration.

    Raises DemoError if a demonstration is running.
    """
    root.mkdir(parents=True, exist_ok=True)
    lock = (root / _LOCK).open("a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise DemoError(
            f"a demonstration is running from this checkout (process {holder}); end it with Ctrl-C first"
        ) from None
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    messages = _clear(root)
    server = _server_folder(root)
    (root / "server.folder").write_text(str(server), encoding="utf-8")
    return State(root, server, lock), messages


def _clear(root: Path) -> list[str]:
    messages = []
    processes = left_over_processes(root)
    if processes:
        end(processes)
        messages.append(f"ended {len(processes)} processes of a demonstration that was killed")
    record = root / "server.folder"
    server = Path(record.read_text(encoding="utf-8")) if record.exists() else root / "server"
    pid = _postmaster(server)
    if pid is not None:
        end([pid])
        messages.append(f"ended its PostgreSQL (process {pid})")
    if server.name.startswith(_SERVER_PREFIX):
        shutil.rmtree(server, ignore_errors=True)
    for entry in root.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != _LOCK:
            entry.unlink()
    return messages


def _postmaster(server: Path) -> int | None:
    """Return the process of the cluster in `server`, None if it is not running (or if another process has its id now)."""
    try:
        pid = int((server / "data" / "postmaster.pid").read_text(encoding="utf-8").split()[0])
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError, IndexError):
        return None
    return pid if str(server / "data").encode() in arguments else None


def _server_folder(root: Path) -> Path:
    folder = root / "server"
    folder.mkdir()
    user = unprivileged_user()
    if user is None:
        return folder
    # A program of another user needs search permission on every folder above, which a private checkout does not give. This
    # user keeps owning the folder itself (`EmbeddedPostgres` has the reason) and lets the other user pass through.
    folder.chmod(0o711)
    reached = subprocess.run(
        ["/bin/sh", "-c", 'cd "$1"', "sh", str(folder)],
        check=False,
        capture_output=True,
        cwd="/",
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
    )
    return folder if reached.returncode == 0 else Path(tempfile.mkdtemp(prefix=_SERVER_PREFIX))
