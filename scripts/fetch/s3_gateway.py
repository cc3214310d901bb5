"""Builds the second S3 server of the tests, versitygw over a folder, from `scripts/fetch/gateway` into .cache/s3_gateway.

Starting it belongs to `tests/support/stores/fix_object_store.py`. Go 1.25 or later compiles it, in two minutes; its
modules come by its own proxy, with the checksums in `go.sum`. Without Go nothing is built, and the tests that ask for it
are skipped.

    .venv/bin/python scripts/fetch/s3_gateway.py
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("gateway")
# An executable that is there already; then nothing is built.
VARIABLE = "LAKEPROOF_S3_GATEWAY"
_FILES = ("main.go", "go.mod", "go.sum")
_TIMEOUT_S = 1800


class BuildError(Exception):
    """The server can't be built; `str()` has the reason and the remedy."""


def main() -> int:
    """Return 0 if the server is there or there is no Go, 2 with one line on stderr if building it failed."""
    if not executable().exists() and shutil.which("go") is None:
        print("no S3 gateway: there is no Go; install Go 1.25 to test on a second S3 server", flush=True)
        return 0
    try:
        print(f"S3 gateway: {build()}", flush=True)
    except BuildError as error:
        print(f"lakeproof: {error}", file=sys.stderr)
        return 2
    return 0


def executable() -> Path:
    """Return where the server is, or would be: its name changes with its source."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given)
    digest = hashlib.sha256(b"\0".join((SOURCE / name).read_bytes() for name in _FILES)).hexdigest()[:16]
    return ROOT / ".cache" / "s3_gateway" / f"s3_gateway-{digest}"


def build() -> Path:
    """Return the server, built if it is not there. Raises BuildError."""
    target = executable()
    if target.exists():
        return target
    go = shutil.which("go")
    if go is None:
        raise BuildError("the S3 gateway can't be built: there is no Go; install Go 1.25")
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    cache = ROOT / ".cache" / "go"
    environment = {"GOCACHE": str(cache / "build"), "GOMODCACHE": str(cache / "modules"), **os.environ}
    command = [go, "build", "-trimpath", "-mod=readonly", "-o", str(unfinished), "."]
    done = subprocess.run(
        command, cwd=SOURCE, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise BuildError(f"the S3 gateway was not built: {lines[-1]}; see {SOURCE}")
    unfinished.rename(target)
    return target


if __name__ == "__main__":
    sys.exit(main())
