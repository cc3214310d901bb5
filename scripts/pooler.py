"""Finds a PgBouncer for the tests of poolers, or installs Debian's as root.

Running it does not belong here (`tests/fix_pooler.py`). Without one those tests are skipped, with the reason.

    .venv/bin/python scripts/pooler.py             prints its path; installs it if there is none, some 1 MB
"""

from __future__ import annotations

import os
import shutil
import sys

from scripts.debian import PackageError, install

VARIABLE = "LAKEPROOF_PGBOUNCER"
# Debian's is not on everybody's path.
_PLACES = ("pgbouncer", "/usr/sbin/pgbouncer")
REMEDY = f"run .venv/bin/python scripts/pooler.py as root on Debian, or set {VARIABLE} to a PgBouncer"


def main() -> int:
    """Return 0 if there is a PgBouncer now, 2 with one line on stderr if not."""
    try:
        print(find() or installed(), flush=True)
    except PackageError as error:
        print(f"lakeproof: {error}", file=sys.stderr)
        return 2
    return 0


def find() -> str | None:
    """Return the program's path, None if this machine has none."""
    configured = os.environ.get(VARIABLE)
    places = (configured,) if configured else _PLACES
    return next((path for place in places if (path := shutil.which(place)) is not None), None)


def installed() -> str:
    """Install Debian's package and return the program's path; raises PackageError."""
    install(["pgbouncer"], REMEDY)
    program = find()
    if program is None:
        raise PackageError("Debian's package pgbouncer brought no program")
    return program


if __name__ == "__main__":
    sys.exit(main())
