"""A table that is made in the stream and altered before or after a look at the catalog: nothing of it is lost in silence.

Cycles are planned as they are run, and added up by plain Python (`tests/support/lake/modelled_lake.py`): no JVM is
needed. The whole way with one is at the end; random orders are in `tests/properties/schema/test_made_and_altered_random.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakeproof
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.drain import drain
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.drain.until import Until
from lakeproof.names import TableName
from lakeproof.proof.run import ProofRequest
from tests.support.ingest.fix_drain import Drained
from tests.support.lake.modelled_lake import ModelledLake
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import into_the_lake

pytestmark = pytest.mark.postgres
FAST = TableName("public", "fast")


@pytest.fixture
def lake(database: Database, tmp_path: Path) -> ModelledLake:
    """A lake of a database without a table but one that carries the stream on, all of them published."""
    database.execute("CREATE TABLE first (id serial PRIMARY KEY, v int)", "CREATE PUBLICATION shop FOR ALL TABLES")
    drained = Drained(database, tmp_path / "lake")
    drained.begin()
    return ModelledLake(drained)


def settled(lake: ModelledLake, *, between: bool = False) -> None:
    """Drain until the landing is past what was noticed in the catalog, and compact; `between`: each time."""
    for last in (False, True):
        lake.drained.database.execute("INSERT INTO first (v) VALUES (1)")
        lake.drained.drain()
        if between or last:
            lake.compact()


def run(database: Database, *statements: str) -> None:
    """Run each in a transaction of its own."""
    with database.connect() as conn:
        for statement in statements:
            conn.execute(statement.encode())


@pytest.mark.parametrize("between", [False, True], ids=["compacted_late", "compacted_each_time"])
@pytest.mark.parametrize("looked", [False, True], ids=["before_a_look", "after_a_look"])
@pytest.mark.parametrize("default", [" DEFAULT 42", ""], ids=["with_default", "without"])
@pytest.mark.parametrize("keyed", [False, True], ids=["full", "keyed"])
def test_a_column_added_to_a_new_table_comes_without_a_further_row(
    lake: ModelledLake, *, looked: bool, default: str, keyed: bool, between: bool
) -> None:
    """Row 1 has the default in the lake, and a row that comes later fits."""
    database = lake.drained.database
    how = ["CREATE TABLE fast (f1 int PRIMARY KEY)"]
    if not keyed:
        how = ["CREATE TABLE fast (f1 int)", "ALTER TABLE fast REPLICA IDENTITY FULL"]
    run(database, *how, "INSERT INTO fast VALUES (1)")
    if looked:
        lake.drained.drain()
    run(database, f"ALTER TABLE fast ADD COLUMN f2 int{default}")
    settled(lake, between=between)
    assert not lake.difference()
    assert lake.rows[FAST] == [{1: 1, 2: 42 if default else None}]
    assert FAST not in lake.ever_held
    run(database, "INSERT INTO fast VALUES (2, 7)")
    settled(lake, between=between)
    assert not lake.difference()
    assert lake.entered[FAST] == 1


@pytest.fixture
def config(database: Database, tmp_path: Path) -> Config:
    """A lake whose publication has all tables, begun with one of them."""
    database.execute(
        "CREATE TABLE first (id serial PRIMARY KEY, v int)",
        "INSERT INTO first (v) VALUES (1)",
        "CREATE PUBLICATION pub FOR ALL TABLES",
    )
    result = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "l"), sources={"shop": database.source(buckets=16)})
    bootstrap(result, "shop")
    return result


@pytest.mark.spark
@pytest.mark.slow
def test_all_the_way_the_lake_has_what_the_source_has(database: Database, config: Config, spark: SparkSession) -> None:
    """Tables with and without rows are made, looked at, altered without a further row, and filled: no proof finds more."""
    into_the_lake(config, spark)
    run(
        database,
        "CREATE TABLE fast (f1 int)",
        "ALTER TABLE fast REPLICA IDENTITY FULL",
        "CREATE TABLE keyed (id int PRIMARY KEY)",
        "INSERT INTO fast VALUES (1)",
        "INSERT INTO keyed VALUES (1)",
        "CREATE TABLE empty (id int PRIMARY KEY, v int)",
        "CREATE UNLOGGED TABLE late (id int PRIMARY KEY)",
        "CREATE TABLE unlike (id int PRIMARY KEY, v int)",
        "INSERT INTO unlike VALUES (1, 1)",
    )
    drain(config, "shop", Until.caught_up())
    run(
        database,
        "ALTER TABLE fast ADD COLUMN f2 int DEFAULT 42",
        "ALTER TABLE keyed ADD COLUMN f2 int DEFAULT 42, ADD f3 text",
        "ALTER TABLE empty ALTER id TYPE bigint USING id::bigint",
        "ALTER TABLE empty ALTER v TYPE timestamptz USING now()",
        "ALTER TABLE late SET LOGGED",
        "ALTER TABLE unlike ALTER v TYPE text USING v || '!'",
        "TRUNCATE unlike",
    )
    for _ in range(2):
        run(database, "INSERT INTO first (v) VALUES (1)")
        drain(config, "shop", Until.caught_up())
    into_the_lake(config, spark)
    proofs = prove(config, "shop", None, spark, request=ProofRequest(history=True))
    assert {str(table): proof.status for table, proof in proofs.tables.items()} == dict.fromkeys(
        ["public.first", "public.fast", "public.keyed", "public.empty", "public.late", "public.unlike"], "equal"
    ), {str(table): proof.reason for table, proof in proofs.tables.items()}
    assert lakeproof.read(config.lake).table("shop", "public.fast").arrow().to_pylist() == [{"f1": 1, "f2": 42}]
    run(
        database,
        "INSERT INTO fast VALUES (2, 7)",
        "UPDATE keyed SET f3 = 'x'",
        "INSERT INTO empty VALUES (5, now()), (6, now())",
        "DELETE FROM empty WHERE id = 5",
        "INSERT INTO late VALUES (1)",
        "INSERT INTO unlike VALUES (1, 'x')",
    )
    into_the_lake(config, spark)
    proofs = prove(config, "shop", None, spark, request=ProofRequest(history=True))
    assert {proof.status for proof in proofs.tables.values()} == {"equal"}, proofs
    assert not proofs.damaged
