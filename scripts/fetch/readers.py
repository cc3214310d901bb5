"""Fetches readers that the project does not use, Polars and DuckDB with its extension for Delta, for tests of the manual.

The tests do not belong here (`edges/reading/test_readers_page.py`: which reader reads what;
`scenarios/test_manual_pages.py`: the lines of the pages). Versions and hashes are in `readers.lock`. They are not in the
environment of everything else, since no code may come to need them. What is already there needs no network.

    .venv/bin/python scripts/fetch/readers.py            into .cache/readers, or LAKEPROOF_READERS, some 350 MB
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = Path(__file__).with_name("readers.lock")
FOLDER = Path(os.environ.get("LAKEPROOF_READERS") or ROOT / ".cache" / "readers")
_STAMP = "lakeproof.stamp"
_TIMEOUT_S = 600


class FetchError(Exception):
    """The readers could not be fetched; `str()` has the reason and the remedy."""


def main() -> int:
    """Return 0 if the readers are there, 2 with one line on stderr if not."""
    try:
        print(f"Polars and DuckDB in {fetch()}", flush=True)
    except FetchError as error:
        print(f"lakeproof: {error}", file=sys.stderr)
        return 2
    return 0


def fetch(folder: Path = FOLDER) -> Path:
    """Return the folder with the locked packages, fetched if they are missing. Raises FetchError."""
    digest = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()
    stamp = folder / _STAMP
    if stamp.exists() and stamp.read_text(encoding="utf-8") == digest:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "uv", "pip", "install", "-q", "--no-deps", "--require-hashes"]
    command += ["--python", sys.executable, "--target", str(folder), "-r", str(LOCK)]
    remedy = "is the network reachable, and the package index that pip is configured for?"
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise FetchError(f"the readers did not come within {_TIMEOUT_S} s; {remedy}") from None
    if done.returncode != 0:
        raise FetchError(f"the readers could not be fetched; {remedy}\n{done.stderr.strip()[-1000:]}")
    folder.mkdir(parents=True, exist_ok=True)
    stamp.write_text(digest, encoding="utf-8")
    return folder


if __name__ == "__main__":
    sys.exit(main())
