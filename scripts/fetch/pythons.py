"""Runs a module under another Python, in an environment of its own with exactly the locked packages.

    .venv/bin/python scripts/fetch/pythons.py 3.12 -m pytest -q tests/core

The environment of this Python does not belong here (`scripts/install/setup.py`). Interpreters are not fetched: one is taken
from PATH, or from pyenv's folder. Environments are in .cache/pythons, 2 GB each, and are made again when a lock has changed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "pythons"
LOCK = ROOT / "requirements.lock"
# pytest's status if it had no test to run: `parts.py` shows such a part as one that has run nothing.
NO_TESTS = 5


def main() -> int:
    """Return the module's status; 5 with one line on stderr if this machine does not have the Python."""
    version, *arguments = sys.argv[1:]
    python = interpreter(version)
    if python is None:
        print(f"no Python {version} on PATH or in pyenv's folder; install one", file=sys.stderr)
        return NO_TESTS
    try:
        return subprocess.call([environment(version, python), *arguments], cwd=ROOT)
    except subprocess.CalledProcessError as error:
        return int(error.returncode)


def interpreter(version: str) -> str | None:
    """Return the path of a Python of that version that can create an environment, None if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [f"python{version}", *sorted(map(str, pyenv.glob(f"versions/{version}.*/bin/python")))]
    # A version manager's shim may be on PATH without working, which the script knows.
    chosen = subprocess.run(
        ["sh", str(ROOT / "scripts" / "install" / "find_python.sh")],
        env={**os.environ, "PYTHON": " ".join(candidates)},
        capture_output=True,
        text=True,
        check=False,
    )
    return chosen.stdout.strip() or None


def environment(version: str, python: str) -> str:
    """Return the interpreter of the environment, which has what the lock has; raises CalledProcessError if a step fails."""
    folder = CACHE / version
    own, stamp = str(folder / "bin" / "python"), folder / "lakeproof.stamp"
    lock = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text(encoding="utf-8") == lock:
        return own
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "-q", "--clear", "--python", python, str(folder)], check=True)
    subprocess.run([*uv, "pip", "sync", "-q", "--require-hashes", "--python", own, str(LOCK)], check=True)
    subprocess.run([*uv, "pip", "install", "-q", "--no-deps", "--python", own, "-e", str(ROOT)], check=True)
    stamp.write_text(lock, encoding="utf-8")
    return own


if __name__ == "__main__":
    sys.exit(main())
