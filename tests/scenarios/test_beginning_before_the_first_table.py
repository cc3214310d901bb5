"""A source is begun before its application has made a table: the first snapshot is empty, and every table comes by itself.

Seen once: `bootstrap` of a publication FOR ALL TABLES refused a database without a table, with a remedy that did not fit,
though to begin there is the one way in which every table of an application comes into the lake without a copy.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typing_extensions import LiteralString

from lakeproof.cli.main import main
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.check import check_source
from lakeproof.commands.prove import prove
from lakeproof.commands.recover import recover
from lakeproof.config.load import load
from lakeproof.config.model import Config
from lakeproof.names import Incarnation, TableName
from lakeproof.snapshot.folder import read_request, snapshot_folders
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.compare import lake_rows, source_rows, table_columns
from tests.support.lake.lake_cuts import cut_of
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE, into_the_lake

pytestmark = [pytest.mark.postgres]
TABLES = tuple(TableName("public", name) for name in ("items", "log"))
ROOT, LEAF = TableName("public", "root"), TableName("public", "root_1")
MIGRATIONS: tuple[LiteralString, ...] = (
    "CREATE TABLE items (id serial PRIMARY KEY, v text)",
    "INSERT INTO items (v) SELECT 'x' FROM generate_series(1, 50)",
    "CREATE TABLE log (what text)",
    "INSERT INTO log VALUES ('a'), ('a')",
    "UPDATE items SET v = 'y' WHERE id % 3 = 0",
    "DELETE FROM items WHERE id % 7 = 0",
)
PARTITIONED: tuple[LiteralString, ...] = (
    "CREATE TABLE root (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE root_1 PARTITION OF root FOR VALUES FROM (0) TO (100)",
    "INSERT INTO root SELECT i, 'r' FROM generate_series(1, 20) i",
    "UPDATE root SET v = 's' WHERE id < 5",
)


@pytest.fixture(params=["all", "schema"])
def config(
    request: pytest.FixtureRequest,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server_version: int,
) -> Config:
    """A database without a table: its publication is one of all tables, or `plan` makes one of the schema."""
    monkeypatch.setenv("SHOP_DSN", database.dsn)
    file = tmp_path / "lakeproof.yaml"
    lines = ["dsn: {env: SHOP_DSN}", "publication: pub", f"slot: {database.name}", "buckets: 16"]
    if request.param == "schema":
        if server_version < 15:
            pytest.skip("it has no publications of schemas")
        lines.append("schemas: [public]")
    else:
        database.execute("CREATE PUBLICATION pub FOR ALL TABLES")
    file.write_text("\n    ".join([f"lake: {tmp_path}/lake\nsources:\n  shop:", *lines]) + "\n", encoding="utf-8")
    if request.param == "schema":
        assert main(["-c", str(file), "apply", "shop"]) == 0
    return load(file)


def _json(config: Config, capture: pytest.CaptureFixture[str], *line: str) -> tuple[int, Any]:
    capture.readouterr()
    status = main(["-c", str(config.path), *line, "--json"])
    return status, json.loads(capture.readouterr().out)


def _assert_equal(config: Config, database: Database, *tables: TableName) -> None:
    cut, lake = cut_of(config), SourceLake.open(config.lake, "shop")
    assert cut.tables.keys() == set(tables)
    assert not cut.held
    for table, expected in source_rows(database.dsn, tables).items():
        path = lake.url(lake.paths.current(table))
        assert lake_rows(path, cut.tables[table].current_version, *table_columns(database.dsn, table)) == expected


@pytest.mark.spark
@pytest.mark.slow
def test_every_table_of_the_application_comes_in_without_a_copy(
    database: Database, config: Config, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command finds nothing wrong with a lake that has no table yet, and the tables are equal to the source.

    One exception: a partitioned table that is published under its own name waits for its copy. A partition that was filled
    and dropped before the catalog was read leaves its rows in the stream, and no trace in the catalog.
    """
    status, report = _json(config, capsys, "check", "shop")
    assert status == 0, report
    assert any("it has no table yet" in finding["reason"] for finding in report["sources"]["shop"]["findings"])
    assert bootstrap(config, "shop").tables == {}
    into_the_lake(config, spark)
    for line in (("status",), ("check",), ("bootstrap", "shop", "--held"), ("drain", "shop", "--once")):
        assert _json(config, capsys, *line)[0] == 0, line
    database.execute(*MIGRATIONS)
    into_the_lake(config, spark)
    database.execute(*PARTITIONED)
    for _ in range(2):
        database.execute("INSERT INTO items (v) VALUES ('later')")
        into_the_lake(config, spark)
    via_root = bool(database.value("SELECT pubviaroot FROM pg_publication"))
    tables = TABLES if via_root else (*TABLES, LEAF)
    _assert_equal(config, database, *tables)
    lake = SourceLake.open(config.lake, "shop")
    requests = [read_request(lake, folder) for folder in snapshot_folders(lake, Incarnation(1))]
    assert [request.tables for request in requests if request is not None] == [()], "nothing was ever copied"
    if via_root:
        tables = (*TABLES, ROOT)
        status, copied = _json(config, capsys, "bootstrap", "shop", "--held")
        assert (status, list(copied["tables"])) == (0, ["public.root"]), copied
    proof = prove(config, "shop", None, spark, request=TABLES_ALONE)
    assert {table: p.status for table, p in proof.tables.items()} == dict.fromkeys(tables, "equal")
    _assert_equal(config, database, *tables)


def test_an_empty_snapshot_may_be_made_again_and_is_no_hindrance_to_recover(database: Database, config: Config) -> None:
    """`bootstrap` again, with and without tables by then; a lost slot before the first table."""
    bootstrap(config, "shop")
    assert bootstrap(config, "shop").tables == {}
    database.drop_slot(database.name)
    assert recover(config, "shop").tables == {}
    assert database.slots() == {database.name}
    database.execute(*MIGRATIONS)
    assert bootstrap(config, "shop").tables.keys() == set(TABLES)


def test_a_publication_of_named_tables_that_has_none_is_still_refused(database: Database, tmp_path: Path) -> None:
    """No table would ever come in by itself."""
    database.execute("CREATE PUBLICATION pub")
    config = Config(path=tmp_path, lake=str(tmp_path / "lake"), sources={"shop": database.source()})
    assert check_source(config, "shop").refused
