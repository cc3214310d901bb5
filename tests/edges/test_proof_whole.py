"""`prove` from end to end: real slot, real landing, real cycle; equal, different, blocked and not applicable."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.fix_postgres import Database
from wal2delta.config.model import Config, SnapshotConfig, TableConfig
from wal2delta.errors import ConfigError, TransientError
from wal2delta.lake.lease import hold_lease
from wal2delta.landing.lake_paths import LakePaths
from wal2delta.landing.store import open_store
from wal2delta.names import TableName
from wal2delta.pipeline.bootstrap import bootstrap
from wal2delta.pipeline.prove import prove
from wal2delta.report import Event

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

_TABLES = (
    "CREATE TABLE items (id int PRIMARY KEY, v text, f float8, n numeric(20,10), t timestamptz, hidden text)",
    "CREATE TABLE days (d date, f float4, v text, PRIMARY KEY (f, d))",
    "CREATE TABLE bag (f float8, v text)",
    "ALTER TABLE bag REPLICA IDENTITY FULL",
    "CREATE TABLE named (code char(4), v numeric)",
    "ALTER TABLE named REPLICA IDENTITY FULL",
    "CREATE TABLE parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (50)",
    "CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (50) TO (1000)",
    "CREATE TABLE log (at int, v text)",
    """CREATE PUBLICATION pub FOR TABLE items (id, v, f, n, t) WHERE (id > 3), days, bag, named, parts
    WITH (publish_via_partition_root)""",
    "CREATE PUBLICATION pub_inserts FOR TABLE log WITH (publish = 'insert')",
    "INSERT INTO items SELECT i, 'é' || i, 'NaN', i / 7.0, 'infinity', 'x' FROM generate_series(1, 40) i",
    "INSERT INTO days SELECT date '2024-01-01' + i, i / 3.0, 'v' FROM generate_series(1, 30) i",
    "INSERT INTO days VALUES ('infinity', '-0', 'x'), ('0044-03-15 BC', 'NaN', '')",
    "INSERT INTO bag SELECT i % 3, NULL FROM generate_series(1, 30) i",
    "INSERT INTO named SELECT 'a' || i, i * 1.50 FROM generate_series(1, 9) i",
    "INSERT INTO parts SELECT i, 'v' FROM generate_series(1, 99) i",
    "INSERT INTO log SELECT i, 'v' FROM generate_series(1, 20) i",
)
_CHANGES = (
    "UPDATE items SET v = v || 'x', f = '-0', n = 0 WHERE id % 2 = 0",
    "UPDATE items SET id = id + 100 WHERE id % 7 = 0",
    "DELETE FROM items WHERE id = 11",
    "UPDATE days SET d = '-infinity' WHERE d = 'infinity'",
    "UPDATE days SET v = NULL WHERE f > 5",
    "INSERT INTO bag VALUES ('-0', 'z'), ('-0', 'z'), (0, 'z')",
    "DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag)",
    "UPDATE named SET v = NULL WHERE code = 'a3'",
    "UPDATE parts SET id = id + 200 WHERE id = 7",
    "INSERT INTO log VALUES (99, 'later')",
)


def table(name: str) -> TableName:
    """A table of the schema public."""
    return TableName("public", name)


@pytest.fixture
def config(database: Database, tmp_path: Path) -> Config:
    """A source of six tables of all makes, bootstrapped, with changes in the stream."""
    database.execute(*_TABLES)
    source = database.source(
        table={table("named"): TableConfig(key=("code",), numeric={"v": (12, 3)})},
        buckets=16,
        snapshot=SnapshotConfig(lock_timeout_s=1.0),
    )
    made = Config(path=tmp_path / "wal2delta.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})
    bootstrap(made, "shop")
    database.execute(*_CHANGES)
    return made


def test_proofs_over_one_lake(database: Database, config: Config, spark: SparkSession) -> None:
    """One after the other, since each needs what the one before has made."""
    events: list[Event] = []
    proof = prove(config, "shop", None, spark, events.append)
    assert {str(t): (p.status, p.reason) for t, p in proof.tables.items() if p.status != "equal"} == {}
    assert proof.equal
    assert proof.position is not None
    assert len(proof.tables) == 6
    items = proof.tables[table("items")]
    assert items.source_rows == items.lake_rows == 36
    assert {e.fields["status"] for e in events if e.kind == "prove.table"} == {"equal"}
    assert database.slots() == {config.sources["shop"].slot}, "the temporary slot is gone"

    _silent_changes_are_found_and_repaired(database, config, spark)
    _an_open_transaction_blocks(database, config, spark)
    _a_held_lease_stops_it(config, spark)
    _unknown_names_are_refused(database, config, spark)


def _silent_changes_are_found_and_repaired(database: Database, config: Config, spark: SparkSession) -> None:
    """A truncated leaf under publish_via_partition_root sends nothing; neither does a delete that is not published."""
    database.execute("TRUNCATE parts_high", "DELETE FROM log WHERE at = 5", "INSERT INTO parts VALUES (60, 'new')")
    proof = prove(config, "shop", [table("parts"), table("log")], spark)
    parts, log = proof.tables[table("parts")], proof.tables[table("log")]
    assert (parts.status, log.status) == ("differs", "not applicable"), parts.reason
    assert not proof.equal
    gone = {str(i) for i in [*range(51, 100), 207] if i != 60}
    assert {k.key["id"] for k in parts.differing_keys} >= gone
    assert all(set(k.key) == {"id"} for k in parts.differing_keys), "no other column's value"
    assert log.reason is not None
    assert "delete" in log.reason
    repaired = prove(config, "shop", [table("parts")], spark, repair=True)
    assert repaired.tables[table("parts")].status == "equal"


def _an_open_transaction_blocks(database: Database, config: Config, spark: SparkSession) -> None:
    """Nothing is compared then, and who stands in the way is named."""
    with database.connect(autocommit=False) as writer:
        writer.execute("INSERT INTO log VALUES (100, 'open')")
        proof = prove(config, "shop", [table("items")], spark)
        pid = writer.info.backend_pid
    blocked = proof.tables[table("items")]
    assert proof.position is None
    assert blocked.status == "blocked"
    assert blocked.reason is not None
    assert f"process {pid}" in blocked.reason


def _a_held_lease_stops_it(config: Config, spark: SparkSession) -> None:
    """Another writer would pass the position."""
    with (
        hold_lease(open_store(config.lake), LakePaths(config.lake, "shop")),
        pytest.raises(TransientError, match="another process"),
    ):
        prove(config, "shop", None, spark)


def _unknown_names_are_refused(database: Database, config: Config, spark: SparkSession) -> None:
    """Before anything is made; a table that is not in the lake yet is blocked."""
    with pytest.raises(ConfigError, match="source other"):
        prove(config, "other", None, spark)
    with pytest.raises(ConfigError, match=r"public\.nothing"):
        prove(config, "shop", [table("nothing")], spark)
    database.execute("CREATE TABLE late (id int PRIMARY KEY)", "ALTER PUBLICATION pub ADD TABLE late")
    found = prove(config, "shop", [table("late")], spark).tables[table("late")]
    assert found.status == "blocked"
    assert found.reason is not None
    assert "bootstrap" in found.reason
    database.execute("ALTER TABLE days ADD COLUMN w int")
    found = prove(config, "shop", [table("days")], spark).tables[table("days")]
    assert found.status == "blocked"
    assert found.reason is not None
    assert "w" in found.reason
