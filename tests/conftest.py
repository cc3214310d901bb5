"""The list of fixture plugins, one per subject, the head of a run's log, and what `--full` adds to a run.

Fixtures themselves don't belong here but in `tests/support/<subject>/fix_*.py`.
"""

from __future__ import annotations

import gc
import os
import platform
import random
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.workloads.examples import FULL

pytest_plugins = [
    "tests.support.servers.fix_postgres",
    "tests.support.servers.fix_proxy",
    "tests.support.ingest.fix_drain",
    "tests.support.stores.fix_object_store",
    "tests.support.stores.fix_cloud_servers",
    "tests.support.spark.fix_cluster",
    "tests.support.spark.fix_lake",
]

# Set before any test module reads it, and inherited by xdist's workers: a run has one seed, whoever asks for it.
os.environ.setdefault("LAKEPROOF_JARS", str(Path(__file__).resolve().parent.parent / ".cache" / "jars"))
os.environ.setdefault("LAKEPROOF_SEED", str(random.SystemRandom().randrange(1, 1 << 31)))


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--full`, as `make test-all` gives it."""
    parser.addoption("--full", action="store_true", help="also the tests marked full, as `make test-all` runs them")


def pytest_configure(config: pytest.Config) -> None:
    """Let a full run try more examples of what hypothesis makes."""
    if config.getoption("--full"):
        os.environ[FULL] = "1"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no cycles while modules are loaded, nor among them later: they stay, and are most of what there is."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what asks for the session; deselect what is marked full, unless `--full` or an `-m` that names it asks for it."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    if config.getoption("--full") or re.search(r"\bfull\b", config.getoption("-m")):
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


def pytest_report_header() -> list[str]:
    """Versions and the seed: a pasted log can be reproduced."""
    packages = ("psycopg", "pyarrow", "pyspark", "delta-spark", "dagster")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return [f"python {platform.python_version()}, {versions}", f"LAKEPROOF_SEED={os.environ['LAKEPROOF_SEED']}"]
