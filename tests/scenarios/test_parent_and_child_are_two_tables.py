"""A parent table and the tables that inherit from it are published, paused, copied and proven each by itself.

Seen once: the statements named plain tables without ONLY, so PostgreSQL added every child to what they named. The
application's changes of a child without a key failed, an excluded child was copied, and a pause took children out too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.cli.main import main
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.check import check_source
from lakeproof.commands.prove import prove
from lakeproof.commands.publish import apply, pause, plan, resume
from lakeproof.config.load import load
from lakeproof.config.model import Config
from lakeproof.config.table_names import parse_table
from lakeproof.events import silent
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.compare import lake_rows, source_rows, table_columns
from tests.support.lake.lake_cuts import cut_of
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE, into_the_lake

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
PARENT, CHILD, KEYED, SECRET = (
    parse_table(f"public.{name}") for name in ("parent", "child", "child_keyed", "child_secret")
)


@pytest.fixture
def family(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A parent with a key and three children, of which one has a key of its own; each table has rows."""
    monkeypatch.setenv("SHOP_DSN", database.dsn)
    database.execute(
        "CREATE TABLE parent (id int PRIMARY KEY, v text)",
        "CREATE TABLE child (extra int) INHERITS (parent)",
        "CREATE TABLE child_keyed (PRIMARY KEY (id)) INHERITS (parent)",
        "CREATE TABLE child_secret (secret text) INHERITS (parent)",
        "INSERT INTO parent SELECT i, 'p' FROM generate_series(1, 20) i",
        "INSERT INTO child SELECT i, 'c', i FROM generate_series(1, 20) i",
        "INSERT INTO child_keyed SELECT i, 'k' FROM generate_series(1, 20) i",
        "INSERT INTO child_secret SELECT i, 's', 'secret' FROM generate_series(1, 20) i",
    )
    return database


def _config(database: Database, folder: Path, tables: str, *more: str) -> Config:
    file = folder / "lakeproof.yaml"
    lines = ["dsn: {env: SHOP_DSN}", "publication: pub", f"slot: {database.name}", "buckets: 16"]
    listed = "\n    ".join([*lines, f"tables: {tables}", *more])
    file.write_text(f"lake: {folder}/lake\nsources:\n  shop:\n    {listed}\n")
    return load(file)


def _published(database: Database, *publications: str) -> set[str]:
    query = "SELECT tablename::text FROM pg_publication_tables WHERE pubname = ANY (%s)"
    return {name for (name,) in database.rows(query, [list(publications or ("pub", "pub_inserts"))])}


def _changes(database: Database) -> None:
    """Changes through the parent, which PostgreSQL applies to its children too, and of each table alone."""
    database.execute(
        "UPDATE parent SET v = v || '!' WHERE id < 5",
        "DELETE FROM parent WHERE id = 6",
        "UPDATE ONLY parent SET v = 'only' WHERE id = 7",
        "DELETE FROM child WHERE id = 8",
        "UPDATE child_keyed SET id = id + 100 WHERE id > 15",
        "INSERT INTO child VALUES (50, 'later', 1)",
        "INSERT INTO child_keyed VALUES (50, 'later')",
        "INSERT INTO parent VALUES (50, 'later')",
        "INSERT INTO child_secret VALUES (50, 'later', 'secret')",
        "ALTER TABLE parent ADD note text DEFAULT 'n'",
        "UPDATE parent SET note = 'of all' WHERE id = 10",
    )


def _assert_equal(config: Config, database: Database, tables: Iterable[TableName]) -> None:
    """The lake has the source's rows of these tables, each without those of its children."""
    cut, lake = cut_of(config), SourceLake.open(config.lake, "shop")
    rows = source_rows(database.dsn, tuple(tables))
    for table, expected in rows.items():
        columns, attnums = table_columns(database.dsn, table)
        path = lake.url(lake.paths.current(table))
        assert lake_rows(path, cut.tables[table].current_version, columns, attnums) == expected, table


def _proven(config: Config, spark: SparkSession) -> dict[str, str]:
    tables = prove(config, "shop", None, spark, request=TABLES_ALONE).tables
    return {table.name: proof.status for table, proof in tables.items()}


@pytest.mark.spark
def test_a_child_without_a_key_goes_on_changing_and_both_are_equal(
    family: Database, tmp_path: Path, spark: SparkSession
) -> None:
    """The parent is in the publication of all changes, the child in that of inserts; no other child is in one."""
    config = _config(family, tmp_path, "[public.parent, public.child]")
    apply(config, "shop", plan(config, "shop"))
    assert (_published(family, "pub"), _published(family, "pub_inserts")) == ({"parent"}, {"child"})
    bootstrap(config, "shop")
    _changes(family)
    into_the_lake(config, spark)
    assert cut_of(config).tables.keys() == {PARENT, CHILD}
    _assert_equal(config, family, [PARENT])
    family.execute("TRUNCATE parent", "INSERT INTO parent VALUES (1, 'new')", "INSERT INTO child VALUES (1, 'new', 2)")
    into_the_lake(config, spark)
    # Its changes were not sent; the TRUNCATE of its parent was its own, too, and from there on it is equal.
    _assert_equal(config, family, [PARENT, CHILD])
    assert _proven(config, spark)["parent"] == "equal"


@pytest.mark.full
@pytest.mark.spark
def test_an_excluded_child_is_neither_published_nor_copied(
    family: Database, tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a pattern: no row of it is in the lake, and copying held tables finds nothing wrong."""
    config = _config(family, tmp_path, "['public.*']", "exclude: [public.child_secret]")
    apply(config, "shop", plan(config, "shop"))
    assert _published(family) == {"parent", "child", "child_keyed"}
    bootstrap(config, "shop")
    _changes(family)
    into_the_lake(config, spark)
    assert cut_of(config).tables.keys() == {PARENT, CHILD, KEYED}
    assert not list((tmp_path / "lake").rglob("*secret*"))
    _assert_equal(config, family, [PARENT, KEYED])
    assert main(["-c", str(config.path), "bootstrap", "shop", "--held"]) == 0, capsys.readouterr().err


@pytest.mark.full
@pytest.mark.spark
def test_a_pause_of_a_parent_leaves_its_children_where_they_are(
    family: Database, tmp_path: Path, spark: SparkSession
) -> None:
    """They are followed all the time; the parent comes back with a copy of its own rows."""
    config = _config(family, tmp_path, "[public.parent, public.child_keyed]")
    apply(config, "shop", plan(config, "shop"))
    bootstrap(config, "shop")
    paused = pause(config, "shop", [PARENT], silent)
    assert paused.statements == ('ALTER PUBLICATION "pub" DROP TABLE ONLY "public"."parent"',)
    assert _published(family) == {"child_keyed"}
    _changes(family)
    into_the_lake(config, spark)
    _assert_equal(config, family, [KEYED])
    resume(config, "shop", None, silent)
    assert _published(family) == {"parent", "child_keyed"}
    family.execute("UPDATE parent SET v = 'again' WHERE id = 2")
    assert _proven(config, spark) == {"parent": "equal", "child_keyed": "equal"}
    _assert_equal(config, family, [PARENT, KEYED])


def test_check_names_a_child_that_is_published_and_not_configured(
    family: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A publication that somebody made without ONLY has all children: named, with the statement that takes them out."""
    family.execute(
        "CREATE TABLE alone (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE parent WITH (publish = 'insert')"
    )
    config = _config(family, tmp_path, "[public.parent, public.alone]", "publish: [insert]")
    [finding] = [f for f in check_source(config, "shop").findings if "does not select" in f.reason]
    assert finding.reason == (
        "it has tables that the configuration does not select: public.child (inherits from public.parent),"
        " public.child_keyed (inherits from public.parent), public.child_secret (inherits from public.parent)"
    )
    assert finding.remedy == (
        "add them to `tables`, or run ALTER PUBLICATION pub DROP TABLE ONLY public.child, ONLY public.child_keyed,"
        " ONLY public.child_secret"
    )
    family.execute(finding.remedy.partition("run ")[2])
    assert _published(family) == {"parent"}
    assert not [f for f in check_source(config, "shop").findings if "does not select" in f.reason]
    # Of one that `plan` made, `apply` takes them out.
    family.execute("ALTER PUBLICATION pub SET TABLE parent")
    family.execute("COMMENT ON PUBLICATION pub IS 'lakeproof: ours'")
    [finding] = [f for f in check_source(config, "shop").findings if "does not select" in f.reason]
    assert finding.remedy == "add them to `tables`, or run `lakeproof apply`, which takes them out"
    planned = plan(config, "shop")
    apply(config, "shop", planned)
    assert _published(family) == {"parent", "alone"}
    capsys.readouterr()
    assert main(["-c", str(config.path), "check", "--json"]) == 0
    assert "does not select" not in json.dumps(json.loads(capsys.readouterr().out))
