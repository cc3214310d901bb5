"""A command of lakeproof, as a person types it, in a process that a test may kill; forked, so that nothing is imported.

Commands that end by themselves run in the test's own process (`typed_commands.py`), those with Spark in one of their own.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from lakeproof.cli.main import main
from tests.support.ingest.forked import Forked

for _name in ("bootstrap", "drain", "recover"):
    import_module(f"lakeproof.commands.{_name}")


def typed(*line: str, failpoint: str = "", **environment: str) -> Forked:
    """Begin `lakeproof LINE`, which is killed at a failpoint, with these variables set."""
    return Forked(_main, line, environment, failpoint=failpoint)


def _main(line: tuple[str, ...], environment: dict[str, str]) -> int:
    os.environ.update(environment)
    try:
        return main(list(line))
    finally:
        sys.stdout.flush()
