"""docs/reading.md, "Readers": what each reader makes of a table in each form is what the page's table says.

A lake under a real PostgreSQL has a table in each form; a reader reads them in a process of its own, and its rows are
compared with the source's. Changes of portable tables belong to `test_portable_tables.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from psycopg.sql import SQL, Identifier
from pyspark.sql import SparkSession
from typing_extensions import LiteralString

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.model import Config, TableConfig
from lakeproof.lake.delta.log.protocol import reader_features
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from scripts.fetch.readers import FetchError, fetch
from tests.support.lake.lake_cuts import cut_of
from tests.support.pages.reader_process import texts
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import into_the_lake

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reading.md"
ALTERED: tuple[LiteralString, ...] = ("ALTER TABLE {t} RENAME w TO x", "ALTER TABLE {t} DROP u")
# The page's columns: what is done to a table (id, v, w, u) after its first copy, and the features that its readers meet.
FORMS: Mapping[str, tuple[tuple[LiteralString, ...], set[str]]] = {
    "portable": (ALTERED, set()),
    "default": ((), {"deletionVectors"}),
    "renamed": (ALTERED, {"deletionVectors", "columnMapping"}),
    "widened": (("ALTER TABLE {t} ALTER v TYPE bigint",), {"deletionVectors", "typeWidening"}),
    "no_zone": (("ALTER TABLE {t} ADD t timestamp",), {"timestampNtz"}),
}
PORTABLE = {TableName("public", name): TableConfig(readers="portable") for name in ("portable", "no_zone")}
# The page's rows, by the reader's name in `reader_process`.
READERS = {
    "spark": "Spark with Delta 4.4",
    "lakeproof": "`lakeproof.read`, [without Spark](#without-spark)",
    "queries": "delta-rs 1.6, `QueryBuilder`",
    "arrow": "delta-rs 1.6, `to_pyarrow_table`",
    "polars": "Polars 2.1, `scan_delta`",
    "duckdb_delta": "DuckDB 1.5 with its extension for Delta, `delta_scan`",
    "duckdb": "DuckDB 1.5, `read_parquet` of delta-rs's `file_uris()`",
}
FETCHED = ("polars", "duckdb", "duckdb_delta")


def test_the_page_says_what_each_reader_does(database: Database, tmp_path: Path, spark: SparkSession) -> None:
    """All rows of the source, an error, or other rows; a reader that can't be fetched here is left out."""
    for name in FORMS:
        _run(database, name, "CREATE TABLE {t} (id int PRIMARY KEY, v int, w text, u int)",
             "INSERT INTO {t} SELECT i, i, 'w' || i, i FROM generate_series(1, 20) i")  # fmt: skip
    database.execute("CREATE PUBLICATION pub FOR ALL TABLES")
    source = database.source(buckets=16, table=PORTABLE)
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})
    bootstrap(config, "shop")
    into_the_lake(config, spark)
    for name, (statements, _) in FORMS.items():
        touch: tuple[LiteralString, ...] = ("UPDATE {t} SET v = 70000 WHERE id = 5", "DELETE FROM {t} WHERE id = 6")
        _run(database, name, *statements, *touch, "INSERT INTO {t} (id, v) VALUES (21, 21)")
    into_the_lake(config, spark)
    tables, expected = _tables(database, config)
    given = {"spark": [{"rows": _by_spark(spark, table)} for table in tables]}
    given |= {name: read for name in READERS if name != "spark" and (read := _by_process(name, tables)) is not None}
    actual = {
        READERS[name]: tuple(_verdict(*pair) for pair in zip(one, expected, strict=True)) for name, one in given.items()
    }
    page = _page()
    assert page.keys() == set(READERS.values())
    lines = "\n".join(f"| {name} | {' | '.join(cells)} |" for name, cells in actual.items())
    errors = [f"{name}: {g['error']}" for name, one in given.items() for g in one if "error" in g]
    assert {name: page[name] for name in actual} == actual, "\n".join([*errors, "the page should say", lines])


def _run(database: Database, name: str, *statements: LiteralString) -> None:
    for statement in statements:
        database.execute(SQL(statement).format(t=Identifier(name)))


def _tables(database: Database, config: Config) -> tuple[list[dict[str, object]], list[list[str]]]:
    """Each form's current for a reader, and its rows in the source."""
    lake, cut = SourceLake.open(config.lake, "shop"), cut_of(config)
    tables: list[dict[str, object]] = []
    expected = []
    for name, (_, features) in FORMS.items():
        cut_table = cut.tables[TableName("public", name)]
        path = lake.url(lake.paths.current(TableName("public", name)))
        assert set(reader_features(path, cut_table.current_version)) == features
        columns = [c.name for c in cut_table.version.columns]
        tables.append({"path": path, "version": cut_table.current_version, "columns": columns})
        listed = SQL(", ").join(map(Identifier, columns))
        expected.append(texts(database.rows(SQL("SELECT {} FROM {}").format(listed, Identifier(name)))))
    return tables, expected


def _by_spark(spark: SparkSession, table: Mapping[str, object]) -> list[str]:
    rows = spark.read.format("delta").option("versionAsOf", str(table["version"])).load(str(table["path"]))
    return texts(tuple(row) for row in rows.select(*table["columns"]).collect())  # type: ignore[misc]  # JSON's list


def _by_process(name: str, tables: list[dict[str, object]]) -> list[dict[str, list[str]]] | None:
    """Return the rows that a reader gives for each table; None if it could not be fetched."""
    environment = dict(os.environ)
    if name in FETCHED:
        try:
            environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(fetch())])
        except FetchError:
            return None
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.pages.reader_process", name],
        cwd=ROOT, env=environment, input=json.dumps(tables), capture_output=True, text=True, check=True,
    )  # fmt: skip
    given: list[dict[str, list[str]]] = json.loads(done.stdout)
    return given


def _verdict(given: Mapping[str, list[str]], expected: list[str]) -> str:
    if "error" in given:
        return "refuses"
    return "yes" if given["rows"] == expected else "wrong rows"


def _page() -> dict[str, tuple[str, ...]]:
    """The table under "Readers": reader → its cells."""
    section = PAGE.read_text("utf-8").partition("\n## Readers\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in section.splitlines()
        if line.startswith("| ")
    ]
    return {row[0]: tuple(row[1:]) for row in rows[1:] if len(row) == 1 + len(FORMS)}
