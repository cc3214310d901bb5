"""Commands that need no Spark don't load it: neither PySpark nor the JVM bridge, whatever they import on the way.

The import contracts forbid it to whole rooms; this test asks a fresh interpreter, for the commands beside and above them.
"""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lakeproof import values
from lakeproof.lake import planning, records

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = (
    "status",
    "check",
    "bootstrap",
    "drain",
    "publish",
    "teardown",
    "recover",
    "init",
)
# Prints, for each of the modules, what of Spark is loaded once it is imported after the ones before it.
_PROGRAM = """
import importlib, json, sys
loaded = {}
for name in sys.argv[1:]:
    importlib.import_module(name)
    loaded[name] = sorted({module.partition(".")[0] for module in sys.modules} & {"pyspark", "py4j", "delta"})
print(json.dumps(loaded))
"""


def _spark_after(modules: Sequence[str]) -> dict[str, list[str]]:
    """Return the packages of Spark that are loaded after each import, in one fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *modules], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded: dict[str, list[str]] = json.loads(done.stdout)
    return loaded


def test_commands_and_documents_that_need_no_spark_do_not_load_it() -> None:
    """A status or a drain starts in a second, and runs on a machine without Java."""
    modules = [f"lakeproof.commands.{name}" for name in COMMANDS]
    modules += ["lakeproof.state.machine", "lakeproof.state.due_work", "lakeproof.compaction.pending"]
    for room in (values, records, planning):
        modules += [f"{room.__name__}.{module.name}" for module in pkgutil.iter_modules(room.__path__)]
    # The last one does load it, which shows that it would be noticed.
    loads = _spark_after([*modules, "lakeproof.lake.spark.session"])
    assert next((f"{name} loads {packages}" for name, packages in loads.items() if packages), "").startswith(
        "lakeproof.lake.spark.session loads"
    )
