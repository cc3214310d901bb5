"""Installs Debian's packages for tests that need a program of another kind: as root, and only if somebody asks for it.

Which programs these are belongs to `browser.py` and `pooler.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess

_TIMEOUT_S = 900


class PackageError(Exception):
    """A package could not be installed; `str()` has the reason and the remedy."""


def install(packages: list[str], remedy: str) -> None:
    """Install the packages; raises PackageError with `remedy`."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise PackageError(f"{packages[0]} is not on this machine; {remedy}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        try:
            done = subprocess.run(
                ["apt-get", "-q", *words],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise PackageError(f"apt-get {words[0]} took longer than {_TIMEOUT_S} s; try again") from None
        if done.returncode != 0:
            raise PackageError(f"apt-get {' '.join(words)} failed; {remedy}\n{done.stderr.strip()[-600:]}")
