"""Finds programs of another kind that tests need, or installs Debian's: as root, and only if somebody asks for it.

`browser.py` and `pooler.py` choose the programs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

_TIMEOUT_S = 900


class PackageError(Exception):
    """A package could not be installed; `str()` has the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program: the variable that may name it, the places where it is else looked for, and the packages that have it."""

    variable: str
    places: Sequence[str]
    packages: Sequence[str]
    remedy: str

    def main(self) -> int:
        """Print the program's path, installing it if there is none; return 0, or 2 with one line on stderr."""
        try:
            print(self.find() or self.installed(), flush=True)
        except PackageError as error:
            print(f"lakeproof: {error}", file=sys.stderr)
            return 2
        return 0

    def find(self) -> str | None:
        """Return the program's path, None if this machine has none."""
        configured = os.environ.get(self.variable)
        places = (configured,) if configured else self.places
        return next((path for place in places if (path := shutil.which(place)) is not None), None)

    def installed(self) -> str:
        """Install the packages and return the program's path; raises PackageError."""
        _install(self.packages, self.remedy)
        program = self.find()
        if program is None:
            raise PackageError(f"Debian's package {self.packages[0]} brought no program; {self.remedy}")
        return program


def _install(packages: Sequence[str], remedy: str) -> None:
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
