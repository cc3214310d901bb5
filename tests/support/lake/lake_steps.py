"""The steps of a test of cycles over a simulated source: a configuration, a compaction, the comparison.

The changes are in `lake_workload.py`; a step of one test alone stays with it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import SecretStr
from pyspark.sql import SparkSession

from lakeproof.commands.compact import compact
from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.section.upkeep import CompactionConfig
from lakeproof.events import Stop, silent
from lakeproof.lake.cycle.runner import CutReport
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.lake.spark_on_demand import AnySpark
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from tests.support.lake.simulated_rows import rows_of
from tests.support.lake.simulated_source import SOURCE, SimulatedSource
from tests.support.workloads.lake_workload import SEED


def make_config(
    lake: Path | LakeLocation,
    cycle_rows: int = 2_000_000,
    engine: Literal["auto", "spark"] = "auto",
    cycle_copies: int = 32,
) -> Config:
    """Return a configuration with a source whose server is never asked."""
    source = SourceConfig(
        name=SOURCE,
        dsn=SecretStr("host=nowhere"),
        publication="shop",
        slot="shop",
        compaction=CompactionConfig(cycle_rows=cycle_rows, cycle_copies=cycle_copies, engine=engine),
    )
    place = LakeLocation.of(lake)
    folder = lake if isinstance(lake, Path) else Path.cwd()
    return Config(path=folder / "lakeproof.yaml", lake=place.url, storage=place.storage, sources={SOURCE: source})


def check(config: Config, source: SimulatedSource, names: list[str]) -> None:
    """Every table at the newest cut equals the source's state at the cut's position."""
    lake = read_lake(config)
    cut = lake.cuts[SOURCE]
    state = source.state_at(cut.position)
    for name in names:
        table = TableName("app", name)
        version = source.tables[table].version
        actual = rows_of(lake.table(SOURCE, table, hidden=True), version)
        assert actual == state[table], f"{name} at cut {cut.number}, {cut.position}, seed {SEED}"


def jobs_run(spark: SparkSession) -> int:
    """The number of jobs that the driver has run."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


def run_compact(spark: AnySpark, config: Config, end: Lsn | None = None) -> list[CutReport]:
    """Compact without progress reports."""
    return compact(config, SOURCE, spark, silent, Stop(), end)
