"""Locks on files, between real processes: they end with their process, and a probe is in nobody's way."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeproof.errors import TransientError
from lakeproof.storage.locks import exclusive, hold_shared, is_locked

_HOLD_EXCLUSIVE = """
import sys
from pathlib import Path
from lakeproof.storage.locks import exclusive
with exclusive(Path(sys.argv[1]), "thing", "reason"):
    print("held", flush=True)
    sys.stdin.read()
"""
_HOLD_SHARED = """
import sys
from pathlib import Path
from lakeproof.storage.locks import hold_shared
assert hold_shared(Path(sys.argv[1])) is not None
print("held", flush=True)
sys.stdin.read()
"""
_PROBE = """
import sys
from pathlib import Path
from lakeproof.storage.locks import is_locked
print("ready", flush=True)
while True:
    is_locked(Path(sys.argv[1]))
"""


@contextlib.contextmanager
def _process(code: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that runs `code` with the lock file and has printed its first line."""
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() in {"held", "ready"}
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("code", [_HOLD_EXCLUSIVE, _HOLD_SHARED])
def test_a_lock_is_seen_until_its_process_is_killed(tmp_path: Path, code: str) -> None:
    """Shared or exclusive; the kernel frees it at once."""
    path = tmp_path / "locks" / "run.lock"
    assert not is_locked(path)
    with _process(code, path) as process:
        assert is_locked(path)
        with pytest.raises(TransientError, match="taken"), exclusive(path, "thing", "it is taken"):
            pass
        process.kill()
        process.wait()
        assert not is_locked(path)
        with exclusive(path, "thing", "it is taken"):
            assert is_locked(path)
    assert not is_locked(path)


def test_shared_locks_go_together_and_no_exclusive_one_beside_them(tmp_path: Path) -> None:
    """Several runs of a job live at once."""
    path = tmp_path / "run.lock"
    with _process(_HOLD_SHARED, path):
        lock = hold_shared(path)
        assert lock is not None
        lock.release()
        lock.release()
    with _process(_HOLD_EXCLUSIVE, path):
        assert hold_shared(path) is None


def test_a_probe_keeps_nobody_from_the_lock_and_is_no_holder(tmp_path: Path) -> None:
    """While a process probes without a pause, taking the lock succeeds each time, and another probe finds it free."""
    path = tmp_path / "run.lock"
    path.touch()
    with _process(_PROBE, path):
        for _ in range(200):
            with exclusive(path, "thing", "it is taken"):
                pass
            assert not is_locked(path)


def test_a_lock_in_this_process_is_seen_too(tmp_path: Path) -> None:
    """The lock belongs to the open file, so another thread meets it like another process."""
    path = tmp_path / "run.lock"
    seen: list[bool] = []
    with exclusive(path, "thing", "it is taken"):
        thread = threading.Thread(target=lambda: seen.append(is_locked(path)))
        thread.start()
        thread.join()
    assert seen == [True]


def test_a_file_that_can_not_be_opened_is_an_error(tmp_path: Path) -> None:
    """The caller decides what an unknown state means."""
    path = tmp_path / "loop"
    path.symlink_to(path)
    with pytest.raises(OSError, match="loop"):
        is_locked(path)
    assert not is_locked(tmp_path / "none" / "run.lock")
