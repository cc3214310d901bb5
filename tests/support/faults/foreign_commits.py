"""A simulated source's lake, and a stranger's session that commits to its Delta tables.

What the engine makes of it belongs to the tests.
"""

from __future__ import annotations

import random
from pathlib import Path

from pyspark.sql import SparkSession

from lakeproof.config.model import Config
from lakeproof.lake.columns import quoted
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import Identity
from tests.support.lake.lake_steps import make_config
from tests.support.lake.simulated_rows import schema
from tests.support.lake.simulated_source import SimulatedSource, SimulatedTable

NAMES = ("deleted", "history_only", "bag", "good")
RNG = random.Random(1)


def begun(lake: Path, names: tuple[str, ...] = NAMES) -> tuple[SimulatedSource, Config]:
    """Tables with ten rows each, in a lake."""
    columns = {"id": "int4", "v": "text"}
    tables = [
        SimulatedTable(schema(name, columns, () if bag else ("id",), Identity.FULL if bag else Identity.DEFAULT, oid))
        for oid, name in enumerate(names, start=1)
        for bag in (name == "bag",)
    ]
    source, config = SimulatedSource(lake, tables), make_config(lake)
    source.snapshot(names)
    write(source, range(10))
    return source, config


def write(source: SimulatedSource, ids: range) -> Lsn:
    """A row for each number in each table, and the first row of all changed; the end of it."""
    for table in source.tables.values():
        for number in ids:
            source.insert(table, (number, f"v{number}"))
        source.update(table, table.rows[0], (table.rows[0][0], f"changed at {ids.start}"))
    end = source.commit(RNG)
    source.flush()
    return end


def place(source: SimulatedSource, layer: str, name: str) -> str:
    """A Delta table, as SQL names it."""
    key = (
        source.lake.paths.history(TableName("app", name))
        if layer == "history"
        else source.lake.paths.current(TableName("app", name))
    )
    return f"delta.{quoted(source.lake.url(key))}"


def foreign_commit(spark: SparkSession, statement: str, table: str) -> None:
    """Somebody's session runs a statement about THE_TABLE."""
    spark.newSession().sql(statement.replace("THE_TABLE", table))
