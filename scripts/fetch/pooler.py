"""Finds a PgBouncer for the tests of poolers, or installs Debian's as root.

Running it does not belong here (`tests/support/servers/fix_pooler.py`). Without one those tests are skipped, with the
reason.

    .venv/bin/python scripts/fetch/pooler.py             prints its path; installs it if there is none, some 1 MB
"""

from __future__ import annotations

import sys

from scripts.fetch.debian import Program

_VARIABLE = "LAKEPROOF_PGBOUNCER"
PGBOUNCER = Program(
    _VARIABLE,
    # Debian's is not on everybody's path.
    places=("pgbouncer", "/usr/sbin/pgbouncer"),
    packages=("pgbouncer",),
    remedy=f"run .venv/bin/python scripts/fetch/pooler.py as root on Debian, or set {_VARIABLE} to a PgBouncer",
)

if __name__ == "__main__":
    sys.exit(PGBOUNCER.main())
