"""The context of a command: the configuration, progress reports, the request to stop, and Spark when it is needed.

What a machine's first use waits for (the jars, the driver, the compiled loops) is reported before the wait begins.
Parsing the command line does not belong here (`arguments`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from lakeproof.cli.interruption import Interruption
from lakeproof.config.load import load
from lakeproof.config.model import Config
from lakeproof.errors import ConfigError
from lakeproof.events import Event, Report, Stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakeproof.lake.spark_on_demand import SparkOnDemand


# Of each set of jars.
_JARS_MB = 12
# numba's index of a loop's machine code.
_CODE = "*.nbi"


@dataclass(frozen=True)
class Context:
    """One run of one command. `config` is read at its first use, so `inspect` works without a configuration."""

    command: str
    config_file: Path | None
    as_json: bool
    report: Report
    stop: Stop
    interruption: Interruption

    @cached_property
    def config(self) -> Config:
        """Read and return the configuration; raises ConfigError.

        A view's mistake is reported, and is the view's alone; `check` has it among the others.
        """
        config = load(self.config_file, set_views_aside=self.command != "check")
        for name, fault in config.faulty_views.items():
            self.report(Event("config.view", f"without view {name}: {fault.reason}", {"view": name}))
        return config

    def source(self, name: str | None) -> str:
        """Return the source to work on: `name`, or the only source; raises ConfigError."""
        names = list(self.config.sources)
        if name is None:
            if len(names) == 1:
                return names[0]
            raise ConfigError(
                f"lakeproof {self.command}",
                "the configuration has several sources",
                f"name one of them: {', '.join(sorted(names))}",
            )
        return self.config.source(name).name

    def sources(self, name: str | None) -> list[str]:
        """Return the selected sources: `name`, or all; raises ConfigError."""
        return list(self.config.sources) if name is None else [self.source(name)]

    def view(self, name: str | None) -> str | None:
        """Return the view to work on, None for all; raises ConfigError."""
        return None if name is None else self.config.view(name).name

    def show(self, text: str) -> None:
        """Print text that people should see before the work begins; with --json it is part of the result instead."""
        if not self.as_json:
            print(text, flush=True)

    def check_free_to_refresh(self) -> None:
        """Raise TransientError if another process refreshes views: before the JVM, which would start for nothing."""
        from lakeproof.lake.records.views.cuts import check_free_to_refresh
        from lakeproof.storage.open import open_store

        check_free_to_refresh(open_store(self.config.location))

    @contextmanager
    def spark(self) -> Iterator[SparkSession]:
        """Give the block a Spark session, and stop it at the end; raises DefiniteError if it does not start."""
        with self.spark_on_demand() as spark:
            yield spark.get()

    @contextmanager
    def spark_on_demand(self) -> Iterator[SparkOnDemand]:
        """Give the block a session that starts when it is asked for, and stop it at the end if it did."""
        from lakeproof.config.section.spark import is_local
        from lakeproof.lake.spark_on_demand import SparkOnDemand

        def start() -> SparkSession:
            from lakeproof.lake.spark.driver import end_now
            from lakeproof.lake.spark.session import session

            report_spark(self.config, self.report)
            started = session(self.config, f"lakeproof {self.command}")
            self.interruption.also_end(partial(end_now, started))
            self.interruption.arm()
            return started

        def end(session: SparkSession) -> None:
            from lakeproof.lake.spark.session import end_driver

            end_driver(session)

        spark = SparkOnDemand(start, everywhere=not is_local(self.config.spark.master), end=end)
        try:
            yield spark
        finally:
            session = spark.forget()
            if session is not None:
                from lakeproof.lake.spark.driver import stop_session

                stop_session(session)


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
