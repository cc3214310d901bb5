"""Checks the Great Expectations of the configuration on current tables, at the newest cut.

A table that this process holds starts no Spark. Reading a table is in `lakeproof.lake.read`, the questions to Great
Expectations in `lakeproof.expectations`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeproof.config.model import Config, SourceConfig
from lakeproof.errors import ConfigError
from lakeproof.events import Event, Report, silent
from lakeproof.expectations.configured import Expectation, expectations
from lakeproof.expectations.evaluate import Expected, Shown, evaluate
from lakeproof.expectations.in_pandas import SparkNeededError, pandas_frame
from lakeproof.lake.delta.arrow_rows import NotInArrowError
from lakeproof.lake.read.arrow.open import ReadLake, read_lake
from lakeproof.lake.spark.driver import driver_lives
from lakeproof.lake.spark.failures import without_java
from lakeproof.lake.spark_on_demand import AnySpark, SparkOnDemand
from lakeproof.lsn import Lsn
from lakeproof.names import TableName

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # it ships no types
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class ExpectReport:
    """The results of each table's expectations, at the newest cut, which has this `position`."""

    source: str
    position: Lsn
    tables: Mapping[TableName, Sequence[Expected]]

    @property
    def all_passed(self) -> bool:
        return all(result.passed for results in self.tables.values() for result in results)


@without_java(lambda _config, name, *_, **__: name)
def expect(
    config: Config, name: str, tables: Sequence[TableName] | None, spark: AnySpark, report: Report = silent
) -> ExpectReport:
    """Check the expectations of `tables`, or of all that the configuration has some for.

    An event names each table that Spark reads, and why. Raises ConfigError for a table without expectations, and for an
    expectation that Great Expectations refuses; LakeError for a table that is not in the lake.
    """
    source = config.source(name)
    existing = {table: checks for table in source.table if (checks := expectations(source, table))}
    for table in tables or ():
        if table not in existing:
            names = ", ".join(map(str, existing)) or "none"
            reason = "the configuration has no expectations of it"
            raise ConfigError(f"table {table}", reason, f"tables of {name} that have some: {names}")
    opened, on_demand = read_lake(config), SparkOnDemand.of(spark)
    chosen = existing if tables is None else {table: existing[table] for table in dict.fromkeys(tables)}
    results: dict[TableName, Sequence[Expected]] = {}
    for table, checks in chosen.items():
        shown = _shown(source, table)
        try:
            frame = _in_pandas(opened, source, table, checks, by_spark=_why_by_spark(source, on_demand))
        except (SparkNeededError, NotInArrowError) as error:
            reason = error.reason if isinstance(error, NotInArrowError) else str(error)
            fields = {"source": name, "table": table.key, "reason": reason}
            report(Event("expect.spark", f"{table}: its expectations are evaluated by Spark: {reason}", fields))
            with driver_lives(on_demand):
                results[table] = evaluate(_by_spark(config, opened, on_demand, name, table), str(table), checks, shown)
        else:
            results[table] = evaluate(frame, str(table), checks, shown)
    return ExpectReport(name, opened.position(name), results)


def _why_by_spark(source: SourceConfig, spark: SparkOnDemand) -> str | None:
    if spark.everywhere:
        return "Spark's tasks run on a cluster"
    return "compaction.engine is spark" if source.compaction.engine == "spark" else None


def _in_pandas(
    opened: ReadLake, source: SourceConfig, table: TableName, checks: Sequence[Expectation], *, by_spark: str | None
) -> pd.DataFrame:
    """Return what the expectations look at; raises SparkNeededError and NotInArrowError if Spark is to read it."""
    rows, cut_table = opened.table(source.name, table), opened.cut(source.name).table(table, source.name)
    if by_spark is not None:
        raise SparkNeededError(by_spark)
    return pandas_frame(rows.delta, rows.columns, checks, cut_table.row_bytes)


def _by_spark(config: Config, opened: ReadLake, spark: SparkOnDemand, name: str, table: TableName) -> DataFrame:
    """Return a frame of the same cut."""
    from lakeproof.lake.read.spark.open import OpenedLake

    return OpenedLake(spark.get(), config.location, opened.cuts).table(name, table)


def _shown(source: SourceConfig, table: TableName) -> Shown:
    config = source.table_config(table)
    return Shown(config.show_values, frozenset(config.secret))
