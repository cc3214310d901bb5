"""The waits of a machine's first use, reported before they begin: the jars, the driver, the compiled loops.

Waiting itself does not belong here (`lakeproof.lake.spark.jars`, `lakeproof.values.compiled`).
"""

from __future__ import annotations

import os
from pathlib import Path

from lakeproof.config.model import Config
from lakeproof.events import Event, Report

# Of each set of jars.
_JARS_MB = 12
# numba's index of a loop's machine code.
_CODE = "*.nbi"


def report_decoding(report: Report) -> None:
    """Report that the loops that decode are compiled first, if no machine code of them is on this machine."""
    package = Path(__file__).resolve().parents[1]
    folder = os.environ.get("NUMBA_CACHE_DIR")
    caches = Path(folder) if folder else Path.home() / ".cache" / "numba"
    if any(package.rglob(f"__pycache__/{_CODE}")) or any(caches.rglob(_CODE)):
        return
    report(Event("compile", "compiling the loops that decode, once on this machine: some 10 s"))


def report_spark(config: Config, report: Report) -> None:
    """Report that Spark starts, and before that what is fetched for it, if anything is."""
    from lakeproof.lake.spark.jars import DELTA, S3, is_on_s3, jar_folder, missing_jars

    absent = [s for s in ([DELTA, S3] if is_on_s3(config.lake) else [DELTA]) if missing_jars(jar_folder(), [s])]
    if absent:
        names = " and ".join(jar_set.name for jar_set in absent)
        message = f"fetching {names}, once on this machine ({_JARS_MB * len(absent)} MB)"
        report(Event("jars.fetch", message, {"jars": missing_jars(jar_folder(), absent)}))
    report(Event("spark.start", "starting Spark"))
