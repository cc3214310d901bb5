"""Tables whose updates PostgreSQL refuses are followed by their inserts and truncates, if nothing can leave them out.

Seen once: with a publication FOR ALL TABLES, or of a schema, each table without a key was refused and not copied at all,
with a remedy (ALTER PUBLICATION … DROP TABLE) that such a publication refuses; and a root without a key over partitions with
keys was refused with the words that its application's changes fail, which they don't. That `plan` publishes no schema with
such a table is in `tests/edges/source/test_publications_configured.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Composed
from pyspark.sql import SparkSession
from typing_extensions import LiteralString

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.check import CheckReport, check_source
from lakeproof.commands.prove import prove
from lakeproof.commands.publish import apply, plan
from lakeproof.commands.recover import recover
from lakeproof.commands.teardown import teardown
from lakeproof.config.model import Config
from lakeproof.config.table_names import parse_selected
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import TableName
from lakeproof.postgres.checks.findings import Finding, Severity
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.compare import lake_rows, source_rows, table_columns
from tests.support.lake.lake_cuts import cut_of
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE, into_the_lake

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
EVERYTHING: dict[str, LiteralString] = {"all": "FOR ALL TABLES", "schema": "FOR TABLES IN SCHEMA public"}
_SINCE = {"all": 14, "schema": 15}
BAGS = ("bare", "nothing", "deferred")
TABLES: tuple[LiteralString, ...] = (
    "CREATE TABLE good (id int PRIMARY KEY, v text)",
    "CREATE TABLE bare (v text, n numeric(9, 2))",
    "CREATE TABLE nothing (id int PRIMARY KEY, v text)",
    "ALTER TABLE nothing REPLICA IDENTITY NOTHING",
    "CREATE TABLE deferred (id int PRIMARY KEY DEFERRABLE, v text)",
    "CREATE TABLE made (v int, id int GENERATED ALWAYS AS (v + 1) STORED PRIMARY KEY)",
    "INSERT INTO good SELECT i, 'x' FROM generate_series(1, 9) i",
    "INSERT INTO bare SELECT 'x', 1.5 FROM generate_series(1, 9) i",
    "INSERT INTO nothing SELECT i, 'x' FROM generate_series(1, 9) i",
    "INSERT INTO deferred SELECT i, 'x' FROM generate_series(1, 9) i",
    "INSERT INTO made SELECT i FROM generate_series(1, 9) i",
)
ROOT: tuple[LiteralString, ...] = (
    "CREATE TABLE root (id int, v text) PARTITION BY LIST (id)",
    "CREATE TABLE root_1 PARTITION OF root (PRIMARY KEY (id)) FOR VALUES IN (1)",
    "CREATE TABLE root_2 PARTITION OF root (PRIMARY KEY (id)) FOR VALUES IN (2)",
    "INSERT INTO root VALUES (1, 'a'), (2, 'b')",
)


def _config(database: Database, folder: Path, **settings: object) -> Config:
    source = database.source(buckets=16, **settings)
    return Config(path=folder / "w.yaml", lake=str(folder / "lake"), sources={"shop": source})


def _names(*names: str) -> list[TableName]:
    return [TableName("public", name) for name in names]


def _of(report: CheckReport, severity: Severity) -> list[Finding]:
    return [f for f in report.findings if f.severity is severity]


def _assert_equal(config: Config, database: Database, tables: Iterable[TableName]) -> None:
    """The lake has the source's rows; of a generated column that is not sent it has none."""
    cut, lake = cut_of(config), SourceLake.open(config.lake, "shop")
    for table, expected in source_rows(database.dsn, tuple(tables)).items():
        columns, attnums = table_columns(database.dsn, table)
        sent = [i for i, name in enumerate(columns) if (table.name, name) != ("made", "id")]
        path = lake.url(lake.paths.current(table))
        version = cut.tables[table].current_version
        actual = lake_rows(path, version, [columns[i] for i in sent], [attnums[i] for i in sent])
        assert sorted(actual.elements()) == sorted(tuple(row[i] for i in sent) for row in expected.elements()), table


def _fails(database: Database, statement: LiteralString | Composed) -> bool:
    try:
        database.execute(statement)
    except (psycopg.errors.ObjectNotInPrerequisiteState, psycopg.errors.InvalidColumnReference):
        return True
    return False


def _assert_inserts_alone(database: Database) -> None:
    """Only the inserts of the table without a key are published, so its application may change its rows."""
    query: LiteralString = "SELECT pubname::text, tablename::text FROM pg_publication_tables ORDER BY 1"
    assert database.rows(query) == [("pub", "good"), ("pub_inserts", "bare")]
    assert not _fails(database, "UPDATE bare SET v = ''")


def _everything(database: Database, kind: str, major: int) -> None:
    if major < _SINCE[kind]:
        pytest.skip("it has no publications of schemas")
    database.execute(SQL("CREATE PUBLICATION pub {}").format(SQL(EVERYTHING[kind])))


@pytest.mark.full
@pytest.mark.parametrize("kind", EVERYTHING)
def test_each_is_a_bag_of_what_was_inserted_and_equal(
    database: Database, tmp_path: Path, spark: SparkSession, kind: str, server_version: int
) -> None:
    """Copied, created in the stream, truncated: both sides have the same rows, since nothing else can change them."""
    database.execute(*TABLES)
    _everything(database, kind, server_version)
    config = _config(database, tmp_path)
    unsent_is_refused = server_version >= 18
    bags = [*BAGS, *(["made"] if unsent_is_refused else [])]
    report = check_source(config, "shop")
    warnings = [f for f in _of(report, Severity.WARNING) if "is followed as a bag" in f.reason]
    assert len(warnings) == (2 if unsent_is_refused else 1), warnings
    assert all(f"public.{name}" in warnings[0].reason for name in BAGS)
    assert "the application's own fail" in warnings[0].reason
    assert {t.name.name: t.kept for t in report.tables if t.kept != "refused"} == {
        "good": "keyed",
        **dict.fromkeys(bags, "bag"),
    }
    assert {f.table for f in _of(report, Severity.ERROR)} == set(_names(*([] if unsent_is_refused else ["made"])))
    if unsent_is_refused:
        bootstrap(config, "shop")
    else:
        bootstrap(config, "shop", _names("good", *BAGS))
    into_the_lake(config, spark)
    _assert_equal(config, database, _names("good", *bags))
    for name, refused in {"bare": True, "nothing": True, "deferred": True, "made": unsent_is_refused}.items():
        update, delete = SQL("UPDATE {} SET v = v").format(SQL(name)), SQL("DELETE FROM {}").format(SQL(name))
        assert [_fails(database, s) for s in (update, delete)] == [refused, refused], name
    database.execute(
        "INSERT INTO bare SELECT * FROM bare",
        "TRUNCATE nothing",
        "INSERT INTO nothing VALUES (1, 'again')",
        "INSERT INTO deferred VALUES (100, 'later')",
        "UPDATE good SET v = 'y' WHERE id < 4",
        "CREATE TABLE later (v text)",
        "INSERT INTO later VALUES ('a'), ('a'), ('b')",
    )
    for _ in range(2):
        database.execute("INSERT INTO good SELECT max(id) + 1, 'z' FROM good")
        into_the_lake(config, spark)
    _assert_equal(config, database, _names("good", "later", *bags))
    proof = prove(config, "shop", _names("good", "later", *bags), spark, request=TABLES_ALONE)
    assert {p.status for p in proof.tables.values()} == {"equal"}


@pytest.mark.parametrize("kind", EVERYTHING)
def test_the_remedy_is_one_that_the_publication_takes(
    database: Database, tmp_path: Path, kind: str, server_version: int
) -> None:
    """No statement about single tables; what it names for a schema is run, and only the inserts are published then."""
    database.execute("CREATE TABLE bare (v text)", "CREATE TABLE good (id int PRIMARY KEY)")
    _everything(database, kind, server_version)
    config = _config(database, tmp_path)
    [finding] = [f for f in check_source(config, "shop").findings if "is followed as a bag" in f.reason]
    assert "DROP TABLE " not in finding.remedy
    assert finding.remedy.startswith("add a primary key or ALTER TABLE … REPLICA IDENTITY FULL, or ")
    named = _config(database, tmp_path, patterns=(parse_selected("*.*"),))
    if kind == "all":
        assert finding.remedy.endswith(
            "or publish tables by name instead: `lakeproof teardown shop`, the DROP PUBLICATION that it names,"
            " `tables: ['*.*']` in the configuration, `lakeproof apply shop`, `lakeproof recover shop`"
        )
        bootstrap(config, "shop")
        assert teardown(config, "shop").kept == ("pub",)
        database.execute("DROP PUBLICATION pub")
        apply(named, "shop", plan(named, "shop"))
        recover(named, "shop")
        _assert_inserts_alone(database)
        return
    statement = "ALTER PUBLICATION pub DROP TABLES IN SCHEMA public"
    assert statement in finding.remedy
    assert "`tables: [public.*]`" in finding.remedy
    database.execute(statement)
    apply(named, "shop", plan(named, "shop"))
    _assert_inserts_alone(database)


@pytest.mark.since(18)
def test_publishing_the_generated_columns_lets_the_application_change_its_rows(
    database: Database, tmp_path: Path
) -> None:
    """The remedy for an identity with a generated column that is not sent."""
    database.execute(*TABLES, "CREATE PUBLICATION pub FOR ALL TABLES")
    config = _config(database, tmp_path)
    [finding] = [f for f in check_source(config, "shop").findings if "identity's columns id" in f.reason]
    statement = "ALTER PUBLICATION pub SET (publish_generated_columns = stored)"
    assert finding.remedy.startswith(f"{statement}, or ALTER TABLE")
    assert _fails(database, "UPDATE made SET v = v")
    database.execute(statement)
    database.execute("UPDATE made SET v = v + 100")
    kept = {t.name.name: t.kept for t in check_source(config, "shop").tables}
    assert (kept["made"], kept["bare"]) == ("keyed", "bag")


@pytest.mark.parametrize("own", ["key", "names"])
def test_partitions_with_keys_below_a_root_without_are_followed_after_the_remedy(
    database: Database, tmp_path: Path, no_spark: SparkOnDemand, own: str
) -> None:
    """The application's changes do not fail; they come without their row's key until one of the two remedies is taken."""
    database.execute(*ROOT, "CREATE TABLE good (id int PRIMARY KEY)")
    database.execute("CREATE PUBLICATION pub FOR TABLE root, good WITH (publish_via_partition_root = true)")
    config = _config(database, tmp_path)
    [error] = _of(check_source(config, "shop"), Severity.ERROR)
    assert error.table == TableName("public", "root")
    assert "fail" not in error.reason
    assert "its partitions have (public.root_1, public.root_2)" in error.reason
    bootstrap(config, "shop", _names("good"))
    into_the_lake(config, no_spark)
    database.execute("UPDATE root SET v = 'changed' WHERE id = 1")
    statement = "ALTER PUBLICATION pub SET (publish_via_partition_root = false)"
    assert f"publish its partitions under their own names: {statement}, then copy them" in error.remedy
    if own == "names":
        database.execute(statement)
        tables = _names("root_1", "root_2")
    else:
        database.execute("ALTER TABLE root ADD PRIMARY KEY (id)")
        tables = _names("root")
    # What is left to do is the copy.
    assert all(
        "it is published and not in the lake" in e.reason for e in _of(check_source(config, "shop"), Severity.ERROR)
    )
    # The drain sees the publication's other form first.
    into_the_lake(config, no_spark)
    bootstrap(config, "shop")
    database.execute(
        "UPDATE root SET v = v || '!'", "DELETE FROM root WHERE id = 2", "INSERT INTO root VALUES (2, 'c')"
    )
    into_the_lake(config, no_spark)
    _assert_equal(config, database, [*tables, *_names("good")])
    proof = prove(config, "shop", [*tables, *_names("good")], no_spark, request=TABLES_ALONE)
    assert {p.status for p in proof.tables.values()} == {"equal"}
    assert not _of(check_source(config, "shop"), Severity.ERROR)


def test_a_root_that_is_not_published_yet_is_followed_with_its_inserts(database: Database, tmp_path: Path) -> None:
    """`plan` publishes no updates of it, and `check` names the way to its partitions; named themselves, they are keyed."""
    database.execute(*ROOT)
    config = _config(database, tmp_path, tables=tuple(_names("root")))
    apply(config, "shop", plan(config, "shop"))
    [note] = [f for f in _of(check_source(config, "shop"), Severity.NOTE) if "only its inserts" in f.reason]
    assert note.remedy.endswith("or name its partitions in `tables` in its place: these have keys")
    leaves = _config(database, tmp_path, tables=tuple(_names("root_1", "root_2")))
    apply(leaves, "shop", plan(leaves, "shop"))
    assert {t.name.name: t.kept for t in check_source(leaves, "shop").tables} == {"root_1": "keyed", "root_2": "keyed"}
