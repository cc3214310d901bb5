"""The demonstration's folder: one at a time, always fresh, and the left-overs of a killed one removed.

What is put into it belongs to `demo.run`.
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

from demo.processes import end, marked
from demo.server import unprivileged_user

_LOCK = "lock"
_SERVER_PREFIX = "lakeproof-demo-"


class DemoError(Exception):
    """The demonstration can't go on; `str()` is one line with the remedy."""


@dataclass
class State:
    """The folder `root` and the cluster's folder `server`, which is elsewhere where PostgreSQL's user can't reach `root`.

    The lock keeps a second demonstration away for as long as this process lives.
    """

    root: Path
    server: Path
    _lock: TextIO

    @property
    def config(self) -> Path:
        """The configuration that the demonstration writes."""
        return self.root / "lakeproof.yaml"

    @property
    def dagster_home(self) -> Path:
        """DAGSTER_HOME."""
        return self.root / "dagster"

    @property
    def end_of_drain(self) -> Path:
        """The file that asks the demonstration's own drain to end."""
        return self.root / "drain.end"

    def close(self) -> None:
        """Let the next demonstration begin."""
        self._lock.close()

    def remove_server(self) -> None:
        """Remove the cluster; the lake, the runs and the logs stay to be looked at until the next start."""
        shutil.rmtree(self.server, ignore_errors=True)


def open_state(root: Path) -> tuple[State, list[str]]:
    """A fresh folder at `root`, and what was found of an earlier demonstration, in words.

    Raises DemoError where one is running.
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
    found = _clear(root)
    server = _server_folder(root)
    (root / "server.folder").write_text(str(server), encoding="utf-8")
    return State(root, server, lock), found


def _clear(root: Path) -> list[str]:
    found = []
    left = marked(root)
    if left:
        end(left)
        found.append(f"ended {len(left)} processes of a demonstration that was killed")
    record = root / "server.folder"
    server = Path(record.read_text(encoding="utf-8")) if record.exists() else root / "server"
    pid = _postmaster(server)
    if pid is not None:
        end([pid])
        found.append(f"ended its PostgreSQL (process {pid})")
    if server.name.startswith(_SERVER_PREFIX):
        shutil.rmtree(server, ignore_errors=True)
    for entry in root.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != _LOCK:
            entry.unlink()
    return found


def _postmaster(server: Path) -> int | None:
    """The process of the cluster in `server`, None where it does not run (or its id belongs to another by now)."""
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
    # Another user's program: it needs search permission on every folder above, which a private checkout does not give. The
    # folder itself stays this user's (`EmbeddedPostgres` says why) and lets the other one through.
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
