"""`prove` from end to end: real slot, real landing, real cycle; every status that a table can have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import check_prove, prove
from lakeproof.config.model import Config, SnapshotConfig, TableConfig
from lakeproof.errors import ConfigError, TransientError
from lakeproof.events import Event
from lakeproof.lake.records.lease import hold_lease
from lakeproof.names import TableName
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from tests.fix_postgres import Database

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
    made = Config(path=tmp_path / "lakeproof.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})
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
    for kind in ("prove.progress", "compact.progress"):
        told = [event.fields for event in events if event.kind == kind]
        assert [told[0]["tables_done"], told[-1]["tables_done"]] == [0, told[-1]["tables"]], kind
        shares = [fields["fraction"] for fields in told]
        assert (shares, shares[-1]) == (sorted(shares), 1.0), kind
    assert database.slots() == {config.sources["shop"].slot}, "the temporary slot is gone"

    _what_is_not_sent_is_not_applicable(database, config, spark)
    _what_the_catalog_tells_holds_the_table(database, config, spark)
    _an_open_transaction_blocks(database, config, spark)
    _a_held_lease_stops_it(config, spark)
    _unknown_names_are_refused(database, config, spark)


@pytest.mark.since(15)
def test_what_leaves_no_trace_at_all_differs_and_is_repaired(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    """A table that leaves a published schema, is changed and comes back between two readings of the catalog."""
    moved = TableName("seen", "t")
    database.execute(
        "CREATE SCHEMA seen",
        "CREATE SCHEMA aside",
        "CREATE TABLE seen.t (id int PRIMARY KEY, v text)",
        "INSERT INTO seen.t SELECT i, 'v' FROM generate_series(1, 99) i",
        "CREATE PUBLICATION pub FOR TABLES IN SCHEMA seen",
    )
    source = database.source(buckets=16)
    config = Config(path=tmp_path / "lakeproof.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})
    bootstrap(config, "shop")
    assert prove(config, "shop", None, spark).equal
    database.execute(
        "ALTER TABLE seen.t SET SCHEMA aside",
        "DELETE FROM aside.t WHERE id > 90",
        "UPDATE aside.t SET v = 'another' WHERE id = 60",
        "ALTER TABLE aside.t SET SCHEMA seen",
        "INSERT INTO seen.t VALUES (300, 'sent')",
    )
    proof = prove(config, "shop", [moved], spark)
    found = proof.tables[moved]
    assert (found.status, found.source_rows, found.lake_rows) == ("differs", 91, 100), found.reason
    assert not proof.equal
    keys = {k.key["id"]: (k.source_rows, k.lake_rows) for k in found.differing_keys}
    assert keys == {str(i): (0, 1) for i in range(91, 100)} | {"60": (1, 1)}
    assert all(set(k.key) == {"id"} for k in found.differing_keys), "no other column's value"
    repaired = prove(config, "shop", [moved], spark, repair=True).tables[moved]
    assert (repaired.status, repaired.lake_rows) == ("equal", 91)


def _what_is_not_sent_is_not_applicable(database: Database, config: Config, spark: SparkSession) -> None:
    """A delete on a table whose inserts only are published: the lake keeps the row, as it may."""
    database.execute("DELETE FROM log WHERE at = 5")
    log = prove(config, "shop", [table("log")], spark).tables[table("log")]
    assert (log.status, log.source_rows, log.lake_rows) == ("not applicable", 20, 21)
    assert "does not send update, delete, truncate, which accounts for 1 row too many in the lake" in (log.reason or "")


def _what_the_catalog_tells_holds_the_table(database: Database, config: Config, spark: SparkSession) -> None:
    """A truncated partition under publish_via_partition_root sends nothing; the drain sees its new file."""
    parts = table("parts")
    database.execute("TRUNCATE parts_high", "INSERT INTO parts VALUES (60, 'after')")
    held = prove(config, "shop", [parts, table("named")], spark)
    assert held.tables[table("named")].status == "equal"
    assert (held.tables[parts].status, held.tables[parts].source_rows) == ("held", 49)
    assert not held.equal
    told = re.fullmatch(
        r"held since [0-9A-F]+/[0-9A-F]+: a partition was truncated, or rewritten .*; run"
        r" `lakeproof bootstrap shop --tables public\.parts`, then compact",
        held.tables[parts].reason or "",
    )
    assert told, held.tables[parts].reason
    bootstrap(config, "shop", [parts])
    assert prove(config, "shop", [parts], spark).tables[parts].status == "equal"


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
    """Before anything is made; a table that is not in the lake yet, or has another shape there, is not compared."""
    with pytest.raises(ConfigError, match="source other"):
        prove(config, "other", None, spark)
    for refused in (lambda t: prove(config, "shop", t, spark), lambda t: check_prove(config, "shop", t)):
        with pytest.raises(ConfigError, match=r"public\.nothing"):
            refused([table("nothing")])
    database.execute("CREATE TABLE late (id int PRIMARY KEY)", "ALTER PUBLICATION pub ADD TABLE late")
    found = prove(config, "shop", [table("late")], spark).tables[table("late")]
    assert found.status == "missing"
    assert found.reason is not None
    assert "run `lakeproof bootstrap shop --tables public.late`" in found.reason
    database.execute("ALTER TABLE days ADD COLUMN w int")
    found = prove(config, "shop", [table("days")], spark).tables[table("days")]
    if found.status == "blocked":
        # Its drain may have read the catalog after the proof's position.
        assert found.reason is not None
        assert "columns added: w; a drain that goes on from here" in found.reason
        found = prove(config, "shop", [table("days")], spark).tables[table("days")]
    assert found.status == "equal"
