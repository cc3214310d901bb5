"""The list of fixture plugins, one per subject, and the head of a run's log.

Fixtures themselves don't belong here but in `tests/fix_<subject>.py`.
"""

from __future__ import annotations

import os
import platform
import random
from importlib.metadata import version
from pathlib import Path

_SUBJECTS = ("fix_postgres", "fix_drain", "fix_lake", "fix_dagster")
pytest_plugins = [f"tests.{name}" for name in _SUBJECTS if Path(__file__).with_name(f"{name}.py").exists()]

# Set before any test module reads it, and inherited by xdist's workers: a run has one seed, whoever asks for it.
os.environ.setdefault("WAL2DELTA_SEED", str(random.SystemRandom().randrange(1, 1 << 31)))


def pytest_report_header() -> list[str]:
    """Versions and the seed: a pasted log can be reproduced."""
    packages = ("psycopg", "pyarrow", "pyspark", "delta-spark", "dagster")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return [f"python {platform.python_version()}, {versions}", f"WAL2DELTA_SEED={os.environ['WAL2DELTA_SEED']}"]
