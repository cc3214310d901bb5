"""Creates .venv from the lock file and fetches the jars; returns at once if nothing has changed since the last time.

Standard library only: this runs before anything is installed. Checking the machine does not belong here (`preflight.py`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
CACHE = ROOT / ".cache"
PYTHON = VENV / "bin" / "python"
LOCKS = (Path(__file__).with_name("installer.lock"), ROOT / "requirements.lock")
# Inside the virtual environment, so that deleting it also deletes the claim that it is complete.
STAMP = VENV / "lakeproof.stamp"


class SetupError(Exception):
    """A step failed; `str()` has the step, the reason and the remedy."""


def main() -> int:
    """Return 0 if the environment is complete, 2 with one line on stderr if it can't be created."""
    inputs = fingerprint()
    if STAMP.exists() and STAMP.read_text(encoding="utf-8") == inputs and _runs():
        return 0
    started = time.monotonic()
    print("Setting up (once; later runs skip this)", flush=True)
    try:
        create_environment()
        # One waits for the network, the other computes.
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(fetch_jars), pool.submit(compile_loops)]:
                done.result()
    except SetupError as error:
        print(f"lakeproof: {error}", file=sys.stderr)
        return 2
    STAMP.write_text(inputs, encoding="utf-8")
    print(f"Set up in {time.monotonic() - started:.0f} s", flush=True)
    return 0


def fingerprint() -> str:
    """Return a digest of the environment's inputs: locks, this script, the Python, and the folder (scripts name it)."""
    digest = hashlib.sha256()
    for path in (*LOCKS, ROOT / "pyproject.toml", Path(__file__)):
        digest.update(path.read_bytes())
    digest.update(f"{sys.version}\n{ROOT}\n".encode())
    return digest.hexdigest()


def create_environment() -> None:
    """Create a virtual environment with exactly the locked packages, hashes checked, and this project editable."""
    with step(f"virtual environment with Python {sys.version.split()[0]}"):
        STAMP.unlink(missing_ok=True)
        if not _runs() or _version() != sys.version:
            shutil.rmtree(VENV, ignore_errors=True)
            run(
                [sys.executable, "-m", "venv", str(VENV)],
                "the virtual environment could not be created; install the venv module of this Python",
            )
    with step("installer"):
        pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "-q", "--no-cache-dir"]
        network = "is the network reachable, and the package index that pip is configured for?"
        run([*pip, "install", "--require-hashes", "-r", str(LOCKS[0])], network)
    uv = [str(PYTHON), "-m", "uv", "pip"]
    with step("packages from requirements.lock, hashes checked"):
        # With bytecode: every run is a new process that imports Dagster, in 0.4 s with it and 1.2 s without.
        run(
            [*uv, "sync", "-q", "--require-hashes", "--compile-bytecode", "--python", str(PYTHON), *_lock_files()],
            network,
        )
    with step("this project, editable"):
        run([*uv, "install", "-q", "--no-deps", "--python", str(PYTHON), "-e", str(ROOT)], network)


def fetch_jars() -> None:
    """Fetch the jars for Delta and S3 into .cache/jars, checksums compared."""
    with step("jars for Delta and S3 (40 files, 25 MB), checksums compared"):
        reason = "the jars could not be fetched: is Maven Central or your mirror reachable?"
        run([str(PYTHON), "-m", "scripts.install.warm_up", "jars"], reason)


def compile_loops() -> None:
    """Compile the decoder's loops to machine code beside their source, so that no first drain, demo or test waits for it."""
    with step("decoder, compiled to machine code"):
        run([str(PYTHON), "-m", "scripts.install.warm_up", "loops"], "the decoder could not be compiled")


@contextmanager
def step(title: str) -> Iterator[None]:
    """Print the title before the step, and afterwards, beside it, how long it took: two steps may go on at a time."""
    print(f"  {title} …", flush=True)
    started = time.monotonic()
    try:
        yield
    except BaseException:
        print(f"  {title}: failed", flush=True)
        raise
    print(f"  {title}: {time.monotonic() - started:.1f} s", flush=True)


def run(command: list[str], remedy: str) -> None:
    """Run `command` quietly; raises SetupError with the last part of its output."""
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        output = (done.stderr.strip() or done.stdout.strip() or "no output")[-1500:]
        raise SetupError(f"{' '.join(command[:6])} … ended with status {done.returncode}; {remedy}\n{output}")


def environment() -> dict[str, str]:
    """Return the caller's environment; caches without a setting go into the checkout."""
    env = dict(os.environ)
    env.setdefault("UV_CACHE_DIR", str(CACHE / "uv"))
    env["LAKEPROOF_JARS"] = str(CACHE / "jars")
    # These belong to the caller's installation, and would send the packages elsewhere.
    for name in ("VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH", "PIP_TARGET", "PIP_USER", "PIP_PREFIX", "SPARK_HOME"):
        env.pop(name, None)
    return env


def _lock_files() -> list[str]:
    # `sync` removes packages that no lock names, so the installer's own lock is included.
    return [str(path) for path in LOCKS]


def _runs() -> bool:
    return PYTHON.exists() and _version() != ""


def _version() -> str:
    try:
        done = subprocess.run(
            [str(PYTHON), "-c", "import sys; print(sys.version)"], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.rstrip("\n")


if __name__ == "__main__":
    sys.exit(main())
