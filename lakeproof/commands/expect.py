"""Checks the Great Expectations of the configuration on current tables, at the newest cut.

Opening a table does not belong here (`lakeproof.lake.read.open`), nor what Great Expectations is asked and which of its
answers are shown (`lakeproof.expectations`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from lakeproof.config.model import Config, SourceConfig
from lakeproof.errors import ConfigError
from lakeproof.expectations.configured import expectations
from lakeproof.expectations.evaluate import Expected, Shown, evaluate
from lakeproof.lake.read.open import open_lake
from lakeproof.lake.spark.failures import without_java
from lakeproof.lake.spark.lost_driver import driver_lives
from lakeproof.lsn import Lsn
from lakeproof.names import TableName


@dataclass(frozen=True, slots=True)
class ExpectReport:
    """The results of each table's expectations, at the newest cut, which has this `position`."""

    source: str
    position: Lsn
    tables: Mapping[TableName, Sequence[Expected]]

    @property
    def all_passed(self) -> bool:
        """True if every expectation is met."""
        return all(result.passed for results in self.tables.values() for result in results)


@without_java(lambda _config, name, *_, **__: name)
def expect(config: Config, name: str, tables: Sequence[TableName] | None, spark: SparkSession) -> ExpectReport:
    """Check the expectations of `tables`, or of all that the configuration has some for.

    Raises ConfigError for a table without expectations, and for an expectation that Great Expectations refuses; LakeError
    for a table that is not in the lake.
    """
    source = config.source(name)
    existing = {table: checks for table in source.table if (checks := expectations(source, table))}
    for table in tables or ():
        if table not in existing:
            names = ", ".join(map(str, existing)) or "none"
            reason = "the configuration has no expectations of it"
            raise ConfigError(f"table {table}", reason, f"tables of {name} that have some: {names}")
    opened = open_lake(spark, config)
    chosen = existing if tables is None else {table: existing[table] for table in dict.fromkeys(tables)}
    results: dict[TableName, Sequence[Expected]] = {}
    for table, checks in chosen.items():
        frame = opened.table(name, str(table))
        with driver_lives(frame.sparkSession):
            results[table] = evaluate(frame, str(table), checks, _shown(source, table))
    return ExpectReport(name, opened.position(name), results)


def _shown(source: SourceConfig, table: TableName) -> Shown:
    config = source.table_config(table)
    return Shown(config.show_values, frozenset(config.secret))
