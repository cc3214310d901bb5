"""The names of a lake in a SQL catalog: what a SQL user reads is the source at the newest cut, in Spark's own and in Hive's.

Reading without a catalog does not belong here (`properties/reading/test_readers.py`).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.commands.refresh import refresh
from lakeproof.config.model import Config, ViewConfig
from lakeproof.config.section.sql_catalog import CatalogConfig
from lakeproof.drain.until import Until
from lakeproof.events import Event, Stop
from lakeproof.names import TableName
from lakeproof.sql_catalog import name_cut
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import into_the_lake

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

CATALOG = CatalogConfig(current="{source}_now", history="{source}_past", views="shared_views")


@pytest.fixture(autouse=True)
def _no_schemas(spark: SparkSession) -> Iterator[None]:
    yield
    for schema in ("shop_now", "shop_past", "shared_views"):
        spark.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.fixture
def config(database: Database, tmp_path: Path) -> Config:
    """Two tables of two schemas and a view, with names in a catalog."""
    database.execute(
        "CREATE SCHEMA sales",
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        'CREATE TABLE sales.t (id int PRIMARY KEY, "Net Sum" numeric(10, 2))',
        "INSERT INTO t SELECT g, 'a' || g FROM generate_series(1, 50) g",
        "INSERT INTO sales.t SELECT g, g * 1.25 FROM generate_series(1, 50) g",
        "CREATE PUBLICATION pub FOR ALL TABLES",
    )
    file = tmp_path / "sums.sql"
    file.write_text("SELECT count(*) AS n FROM t", "utf-8")
    view = ViewConfig(name="counted", sql_file=file, reads={"t": ("shop", TableName("public", "t"))})
    source = database.source()
    return Config(
        path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": source}, views={"counted": view},
        catalog=CATALOG,
    )  # fmt: skip


def _current(spark: SparkSession, database: Database) -> None:
    """The names show what the source has, without hidden columns."""
    assert sorted(map(tuple, spark.sql("SELECT * FROM shop_now.t").collect())) == sorted(
        database.rows("SELECT * FROM t")
    )
    assert sorted(map(tuple, spark.sql("SELECT * FROM shop_now.sales_t").collect())) == sorted(
        database.rows("SELECT * FROM sales.t")
    )


@pytest.mark.full
def test_names_follow_the_cuts(database: Database, config: Config, spark: SparkSession) -> None:
    """Each table of a cut has a name; the next cut moves those whose table it changed."""
    bootstrap(config, "shop")
    into_the_lake(config, spark)
    refresh(config, None, spark)
    _current(spark, database)
    assert [row.n for row in spark.sql("SELECT n FROM shared_views.counted").collect()] == [50]
    database.execute(
        "UPDATE t SET v = 'b' WHERE id <= 10", "DELETE FROM sales.t WHERE id > 40", "ALTER TABLE t ADD w int"
    )
    database.execute("INSERT INTO t VALUES (51, 'c', 1)")
    drain(config, "shop", Until.caught_up())
    events: list[Event] = []
    compact(config, "shop", spark, events.append, Stop())
    assert {e.fields["schema"]: e.fields["names"] for e in events if e.kind == "catalog.named"} == {
        "`shop_now`": 2, "`shop_past`": 2,
    }  # fmt: skip
    _current(spark, database)
    history = spark.sql("SELECT _lp_op, count(*) AS n FROM shop_past.t GROUP BY _lp_op").collect()
    assert {row[0]: row.n for row in history} == {"snapshot": 50, "update": 10, "insert": 1}
    database.execute("UPDATE t SET v = 'd' WHERE id = 1")
    drain(config, "shop", Until.caught_up())
    compact(config, "shop", spark, events.append, Stop())
    assert [e.fields["names"] for e in events if e.kind == "catalog.named"][2:] == [1, 1]
    _current(spark, database)


@pytest.mark.full
def test_a_registration_that_was_cut_off_is_made_up_for(
    database: Database, config: Config, spark: SparkSession
) -> None:
    """The mark is written last; without it, and with a wrong name in between, everything is named again."""
    bootstrap(config, "shop")
    into_the_lake(config, spark)
    spark.sql("DROP VIEW shop_now.t")
    spark.sql("CREATE OR REPLACE VIEW shop_now.sales_t AS SELECT 1 AS wrong")
    spark.sql("CREATE VIEW shop_now.left_over AS SELECT 1 AS wrong")
    spark.sql("ALTER SCHEMA shop_now SET DBPROPERTIES ('lakeproof.mark' = '')")
    events: list[Event] = []
    name_cut(config, "shop", spark, events.append)
    assert [(e.kind, e.fields["names"]) for e in events] == [("catalog.named", 3)]
    _current(spark, database)
    assert {row.viewName for row in spark.sql("SHOW VIEWS IN shop_now").collect()} == {"t", "sales_t"}


@pytest.mark.full
def test_a_schema_of_somebody_else_is_left_alone(config: Config, spark: SparkSession) -> None:
    """A schema with views of its own, and one of another lake: the cut is made all the same."""
    spark.sql("CREATE SCHEMA shop_now")
    spark.sql("CREATE VIEW shop_now.t AS SELECT 'theirs' AS v")
    spark.sql(
        "CREATE SCHEMA shop_past WITH DBPROPERTIES ('lakeproof.owner' = 'history tables of shop in the lake /other')"
    )
    bootstrap(config, "shop")
    events: list[Event] = []
    assert compact(config, "shop", spark, events.append, Stop())
    failed = {e.fields["schema"]: e.fields["reason"] for e in events if e.kind == "catalog.failed"}
    assert failed == {
        "`shop_now`": "schema `shop_now`: it has tables or views of others",
        "`shop_past`": "schema `shop_past`: it has history tables of shop in the lake /other",
    }
    assert [row.v for row in spark.sql("SELECT v FROM shop_now.t").collect()] == ["theirs"]


@pytest.mark.full
def test_external_tables_show_their_newest_version_and_lose_no_file(
    database: Database, config: Config, spark: SparkSession
) -> None:
    """From views to tables and back: a name is never the owner of the data."""
    bootstrap(config, "shop")
    into_the_lake(config, spark)
    tables = config.model_copy(update={"catalog": CATALOG.model_copy(update={"form": "tables"})})
    database.execute("UPDATE t SET v = 'b' WHERE id <= 10")
    into_the_lake(tables, spark)
    columns = spark.table("shop_now.t").columns
    assert columns[:2] == ["id", "v"]
    assert columns[2:] == [name for name in columns if name.startswith("_lp_")] != []
    database.execute("DELETE FROM t WHERE id = 5")
    into_the_lake(tables, spark)
    assert sorted(map(tuple, spark.sql("SELECT id, v FROM shop_now.t").collect())) == sorted(
        database.rows("SELECT * FROM t")
    )
    database.execute("DELETE FROM t WHERE id = 6")
    into_the_lake(config, spark)
    _current(spark, database)


_READS = """
import sys
from pyspark.sql import SparkSession
from lakeproof.config.load import load
from lakeproof.lake.spark.session import session
spark = session(load(None), "a SQL user")
print(*sorted(f"{row.id} {row.v}" for row in spark.sql("SELECT id, v FROM shop.t").collect()), sep="\\n")
"""


@pytest.mark.full
def test_a_hive_metastore_has_the_names_for_other_processes(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process compacts, another one, later, reads by name: the metastore is a database of its own (Derby)."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT g, 'a' || g FROM generate_series(1, 20) g",
        "CREATE PUBLICATION pub FOR TABLE t",
    )
    (tmp_path / "secret").write_text(database.dsn, "utf-8")
    (tmp_path / "lakeproof.yaml").write_text(f"""
lake: ./lake
sources:
  shop: {{dsn: {{file: secret}}, publication: pub, slot: {database.name}}}
catalog: {{current: "{{source}}"}}
spark:
  driver_memory: 1g
  conf:
    spark.sql.catalogImplementation: hive
    spark.sql.warehouse.dir: {tmp_path}/warehouse
    spark.hadoop.javax.jdo.option.ConnectionURL: jdbc:derby:;databaseName={tmp_path}/metastore;create=true
    spark.hadoop.datanucleus.schema.autoCreateAll: true
""", "utf-8")  # fmt: skip
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))

    def run(*command: str) -> str:
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    run("-m", "lakeproof", "bootstrap")
    run("-m", "lakeproof", "compact")
    database.execute("UPDATE t SET v = 'b' WHERE id <= 3")
    run("-m", "lakeproof", "drain", "--once")
    run("-m", "lakeproof", "compact")
    shown = run("-c", _READS).split("\n")[:-1]
    assert shown == sorted(f"{key} {value}" for key, value in database.rows("SELECT id, v FROM t"))
