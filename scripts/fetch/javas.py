"""Runs a module of this Python with another Java: one of JAVA_HOME, of the system's folder or of SDKMAN's; none is fetched.

The Java that commands take does not belong here (`lakeproof.lake.spark.java`).

    .venv/bin/python scripts/fetch/javas.py 21 -m pytest -q -m spark tests/edges/reading

A machine without that Java runs nothing, and says so.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from scripts.fetch.pythons import NO_TESTS

ROOT = Path(__file__).resolve().parents[2]
_VERSION = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)


def main() -> int:
    """Return the module's status; 5 with one line on stderr if this machine does not have the Java."""
    version, *arguments = sys.argv[1:]
    home = home_of(version, candidates())
    if home is None:
        print(f"no Java {version} in JAVA_HOME, /usr/lib/jvm or SDKMAN's folder; install one", file=sys.stderr)
        return NO_TESTS
    return subprocess.call([sys.executable, *arguments], cwd=ROOT, env={**os.environ, "JAVA_HOME": str(home)})


def candidates() -> list[Path]:
    """Return the folders in which a Java may be."""
    own = os.environ.get("JAVA_HOME")
    folders = [Path(own)] if own else []
    for folder in (Path("/usr/lib/jvm"), Path.home() / ".sdkman" / "candidates" / "java"):
        folders += sorted(folder.glob("*"))
    return folders


def home_of(version: str, folders: Iterable[Path]) -> Path | None:
    """Return the first folder with a Java of this major version, None if there is none."""
    for folder in folders:
        release = folder / "release"
        if (folder / "bin" / "java").exists() and release.exists():
            match = _VERSION.search(release.read_text(encoding="utf-8"))
            if match is not None and match[1] == version:
                return folder
    return None


if __name__ == "__main__":
    sys.exit(main())
