"""`prove` from end to end: real slot, real landing, real cycle; every status that a table can have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config, SnapshotConfig, TableConfig
from lakeproof.errors import ConfigError, TransientError
from lakeproof.events import Event, RunControl
from lakeproof.lake.records.lease import hold_lease
from lakeproof.names import TableName
from lakeproof.proof.run import ProofRequest, check_prove
from lakeproof.storage.source_lake import SourceLake
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE

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
    result = Config(path=tmp_path / "lakeproof.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})
    bootstrap(result, "shop")
    database.execute(*_CHANGES)
    return result


# One of the tables is published in part.
@pytest.mark.since(15)
def test_proofs_over_one_lake(database: Database, config: Config, spark: SparkSession) -> None:
    """The steps run in order: each needs the state that the previous step left."""
    events: list[Event] = []
    proof = prove(config, "shop", None, spark, RunControl(events.append))
    assert {str(t): (p.status, p.reason) for t, p in proof.tables.items() if p.status != "equal"} == {}
    assert proof.equal
    assert proof.position is not None
    assert len(proof.tables) == 6
    items = proof.tables[table("items")]
    assert items.source_rows == items.lake_rows == 36
    assert {e.fields["status"] for e in events if e.kind == "prove.table"} == {"equal"}
    for kind in ("prove.progress", "compact.progress"):
        message = [event.fields for event in events if event.kind == kind]
        assert [message[0]["tables_done"], message[-1]["tables_done"]] == [0, message[-1]["tables"]], kind
        shares = [fields["fraction"] for fields in message]
        assert (shares, shares[-1]) == (sorted(shares), 1.0), kind
    assert database.slots() == {config.sources["shop"].slot}, "the temporary slot is gone"

    _what_is_not_sent_and_what_the_catalog_shows(database, config, spark)
    _an_open_transaction_blocks(database, config, spark)
    _a_held_lease_stops_it(config, spark)
    _unknown_names_are_refused(config, spark)
    _a_copy_a_new_table_and_a_new_column(database, config, spark)


@pytest.mark.full
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
    actual = proof.tables[moved]
    assert (actual.status, actual.source_rows, actual.lake_rows) == ("differs", 91, 100), actual.reason
    assert not proof.equal
    keys = {k.key["id"]: (k.source_rows, k.lake_rows) for k in actual.differing_keys}
    assert keys == {str(i): (0, 1) for i in range(91, 100)} | {"60": (1, 1)}
    assert all(set(k.key) == {"id"} for k in actual.differing_keys), "no other column's value"
    repaired = prove(config, "shop", [moved], spark, request=ProofRequest(repair=True)).tables[moved]
    assert (repaired.status, repaired.lake_rows) == ("equal", 91)


def _what_is_not_sent_and_what_the_catalog_shows(database: Database, config: Config, spark: SparkSession) -> None:
    """A delete on a table whose inserts only are published: the lake keeps the row, as it may.

    A truncated partition under publish_via_partition_root sends nothing; the drain sees its new file.
    """
    parts = table("parts")
    database.execute("DELETE FROM log WHERE at = 5")
    database.execute("TRUNCATE parts_high", "INSERT INTO parts VALUES (60, 'after')")
    held = prove(config, "shop", [table("log"), parts, table("named")], spark, request=TABLES_ALONE)
    log = held.tables[table("log")]
    assert (log.status, log.source_rows, log.lake_rows) == ("not applicable", 20, 21)
    assert "does not send update, delete, truncate, which accounts for 1 row too many in the lake" in (log.reason or "")
    assert held.tables[table("named")].status == "equal"
    assert (held.tables[parts].status, held.tables[parts].source_rows) == ("held", 49)
    assert not held.equal
    message = re.fullmatch(
        r"held since [0-9A-F]+/[0-9A-F]+: a partition was truncated, or rewritten .*; run"
        r" `lakeproof bootstrap shop --tables public\.parts`, then compact",
        held.tables[parts].reason or "",
    )
    assert message, held.tables[parts].reason


def _an_open_transaction_blocks(database: Database, config: Config, spark: SparkSession) -> None:
    """Nothing is compared, and the blocking process is named."""
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
    """Another writer would move the lake past the position."""
    with (
        hold_lease(SourceLake.open(config.lake, "shop")),
        pytest.raises(TransientError, match="another process"),
    ):
        prove(config, "shop", None, spark)


def _unknown_names_are_refused(config: Config, spark: SparkSession) -> None:
    """Unknown names are refused before anything is created."""
    with pytest.raises(ConfigError, match="source other"):
        prove(config, "other", None, spark)
    for refused in (lambda t: prove(config, "shop", t, spark), lambda t: check_prove(config, "shop", t)):
        with pytest.raises(ConfigError, match=r"public\.nothing"):
            refused([table("nothing")])


def _a_copy_a_new_table_and_a_new_column(database: Database, config: Config, spark: SparkSession) -> None:
    """A held table is equal after a copy; one that is not in the lake yet is missing, one with a new column follows."""
    database.execute("CREATE TABLE late (id int PRIMARY KEY)", "ALTER PUBLICATION pub ADD TABLE late")
    bootstrap(config, "shop", [table("parts")])
    database.execute("ALTER TABLE days ADD COLUMN w int")
    proofs = prove(
        config, "shop", [table(name) for name in ("parts", "late", "days")], spark, request=TABLES_ALONE
    ).tables
    assert proofs[table("parts")].status == "equal"
    actual = proofs[table("late")]
    assert actual.status == "missing"
    assert actual.reason is not None
    assert "run `lakeproof bootstrap shop --tables public.late`" in actual.reason
    actual = proofs[table("days")]
    if actual.status == "blocked":
        # Its drain may have read the catalog after the proof's position.
        assert actual.reason is not None
        assert "columns added: w; a drain that goes on from here" in actual.reason
        actual = prove(config, "shop", [table("days")], spark, request=TABLES_ALONE).tables[table("days")]
    assert actual.status == "equal"
