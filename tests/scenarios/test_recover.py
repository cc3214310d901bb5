"""A slot is lost with changes in the gap: after `recover` the lake equals the source again, and history has a gap row."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.check import check_source
from lakeproof.commands.prove import prove
from lakeproof.commands.recover import plan_recover, recover
from lakeproof.commands.refresh import refresh
from lakeproof.errors import GapError, SourceError
from lakeproof.events import silent
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.postgres.checks.findings import Severity
from tests.support.servers.fix_postgres import Database, MakeServer
from tests.support.servers.recovery import ITEMS, LOG, SCHEMA, TABLES, Shop, restore_files, save_files
from tests.support.spark.spark_steps import TABLES_ALONE

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


def _lose_slot(database: Database) -> None:
    database.drop_slot(database.name)


def test_a_lost_slot_with_changes_in_the_gap(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """Nothing lost and nothing twice: what landed, the gap, the corrections, and what came after; views and proof go on."""
    view = tmp_path / "notes.sql"
    view.write_text("SELECT note, count(*) AS n FROM items GROUP BY note")
    shop = Shop.of(database, tmp_path / "lake")
    shop.begin()
    shop.view = view
    shop.compact(spark)
    refresh(shop.config, None, spark, silent)
    shop.change(100)
    shop.drain()  # landed, not compacted: it happened, so it goes into the lake before the gap
    end = shop.chain().end
    _lose_slot(database)
    shop.change(200)
    with pytest.raises(GapError, match=r"does not exist; the landing ends at .*lakeproof recover"):
        shop.drain()

    plan = plan_recover(shop.config, "shop")
    assert (plan.incarnation, plan.follows, plan.end_lsn) == (2, 1, end)
    assert not plan.keeps_slot
    recover(shop.config, "shop")
    shop.change(300)
    shop.drain()
    cuts = shop.compact(spark)
    assert [c.incarnation for c in cuts] == [1, 2, 2]
    assert [int(c.number) for c in cuts] == [2, 3, 4]
    assert shop.lake_rows() == shop.source_rows()

    for table in TABLES:
        rows = shop.history(spark, table)
        ops = [r["_lp_op"] for r in rows]
        (position,) = [i for i, op in enumerate(ops) if op == "gap"]
        message = json.loads(rows[position]["_lp_text"])
        assert message == {"from": f"1:{end}", "to": f"2:{shop.chain().head.end_lsn}"}
        assert {"insert", "delete"} <= set(ops[:position])
        assert not any(op.startswith("correct") for op in ops[:position])
        assert {"correct_insert", "correct_delete"} <= set(ops[position + 1 :])
        assert {"insert", "delete"} <= set(ops[position + 1 :])
        assert len({r["_lp_ord"] for r in rows}) == len(rows)
    gone = Counter(r["id"] for r in shop.history(spark, ITEMS) if r["_lp_op"] == "correct_insert")
    assert {200, 201, 202, 203, 204} <= set(gone)

    refresh(shop.config, None, spark, silent)
    lake = read_lake(shop.config)
    notes = Counter(lake.table("shop", ITEMS).arrow()["note"].to_pylist())
    viewed = spark.read.format("delta").load(str(shop.lake / "views" / "notes")).collect()
    assert {r["note"]: r["n"] for r in viewed} == notes
    actual = prove(shop.config, "shop", None, spark, request=TABLES_ALONE)
    assert {p.status for p in actual.tables.values()} == {"equal"}


def test_a_slot_that_is_alive_is_left_alone(database: Database, tmp_path: Path) -> None:
    """Recover says that there is nothing to do, and changes nothing."""
    shop = Shop.of(database, tmp_path / "lake")
    shop.begin()
    shop.change(100)
    with pytest.raises(SourceError, match=f"slot {database.name}: it is alive and meets its landing"):
        recover(shop.config, "shop")
    shop.drain()
    assert shop.chain().incarnation == 1


@pytest.mark.parametrize(
    "place",
    [
        "recover.after_record",
        pytest.param("recover.after_drop", marks=pytest.mark.full),
        pytest.param("bootstrap.after_slot", marks=pytest.mark.full),
        pytest.param("bootstrap.after_head", marks=pytest.mark.full),
        pytest.param("bootstrap.after_chunks", marks=pytest.mark.full),
    ],
)
def test_a_recover_that_is_killed_is_run_again(database: Database, tmp_path: Path, place: str) -> None:
    """After a kill at each step the drain names the remedy, another run finishes, and no slot is left over."""
    shop = Shop.of(database, tmp_path / "lake")
    shop.begin()
    _lose_slot(database)
    assert shop.typed("recover", failpoint=place)[0] == -9
    if place not in {"bootstrap.after_head", "bootstrap.after_chunks"}:
        with pytest.raises(GapError, match="a recover is at work, or was killed"):
            shop.drain()
    else:
        shop.drain()
    recover(shop.config, "shop")
    assert database.slots() == {database.name}
    assert shop.chain().incarnation == 2
    with pytest.raises(SourceError, match="alive"):
        recover(shop.config, "shop")
    shop.change(200)
    shop.drain()


@pytest.mark.full
def test_a_killed_recover_ends_equal(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """The kill comes after the head, while the drain goes on: the second run's snapshot is later, and the lake follows."""
    shop = Shop.of(database, tmp_path / "lake")
    shop.begin()
    shop.compact(spark)
    _lose_slot(database)
    shop.change(100)
    assert shop.typed("recover", failpoint="bootstrap.after_head")[0] == -9
    shop.change(200)
    shop.drain()
    assert shop.compact(spark) == []  # it waits for the snapshot
    proof = prove(shop.config, "shop", None, spark, request=TABLES_ALONE)
    reasons = {proof.tables[table].reason for table in (ITEMS, LOG)}
    assert {p.status for p in proof.tables.values()} == {"blocked"}
    assert all(
        reason and "incarnation 2 has begun" in reason and "`lakeproof recover shop`" in reason for reason in reasons
    )
    shop.change(300)
    recover(shop.config, "shop")
    shop.change(400)
    shop.drain()
    shop.compact(spark)
    assert shop.cut().incarnation == 2
    assert shop.lake_rows() == shop.source_rows()
    for table in (ITEMS, LOG):
        assert sum(r["_lp_op"] == "gap" for r in shop.history(spark, table)) == 1


@pytest.fixture
def restored(make_server: MakeServer, tmp_path: Path) -> Iterator[Shop]:
    """A shop on its own server, begun; the server stands as it was when its files were copied back."""
    with make_server(conf={"fsync": "off"}) as server:
        shop = Shop(server.dsn(), "shop_slot", tmp_path / "lake")
        shop.begin()
        shop.change(100)
        shop.drain()
        server.halt()
        save_files(server)
        server.start()
        shop.change(200)
        shop.execute("INSERT INTO items SELECT g, repeat('x', 100) FROM generate_series(1000, 2000) g")
        shop.drain()
        server.halt()
        restore_files(server)
        server.start()
        yield shop


@pytest.mark.full
def test_a_server_restored_to_an_earlier_time(spark: SparkSession, restored: Shop) -> None:
    """System and timeline are the same and the WAL went back: the new incarnation has lower positions, without harm."""
    shop = restored
    end = shop.chain().end
    with pytest.raises(GapError, match=r"the server's WAL ends at .*: the server was restored"):
        shop.drain()
    recover(shop.config, "shop")
    shop.change(300)
    shop.drain()
    assert shop.chain().end < end
    cuts = shop.compact(spark)
    assert [c.incarnation for c in cuts] == [1, 2, 2]
    assert cuts[-1].position < cuts[0].position
    assert shop.lake_rows() == shop.source_rows()
    rows = shop.history(spark, ITEMS)
    assert {r["id"] for r in rows if r["_lp_op"] == "correct_delete"} >= set(range(1000, 2001))
    shop.change(400)
    shop.drain()
    shop.compact(spark)
    assert shop.lake_rows() == shop.source_rows()
    assert prove(shop.config, "shop", None, spark, request=TABLES_ALONE).tables[LOG].status == "equal"


@pytest.mark.full
def test_a_move_to_another_system(spark: SparkSession, restored: Shop, database: Database) -> None:
    """Refused without a confirmation, since the commonest reason is a wrong DSN; then OIDs and rows are others."""
    shop = restored
    shop.compact(spark)
    cycle = shop.cut().number
    database.execute(
        *SCHEMA, "INSERT INTO items SELECT g, 'moved' FROM generate_series(5, 50) g", "INSERT INTO log VALUES (1, 'z')"
    )
    shop.dsn, shop.slot = database.dsn, database.name
    with pytest.raises(GapError, match=r"the server is system .*, the landing belongs to"):
        shop.drain()
    with pytest.raises(SourceError, match=r"the landing belongs to .*--other-system"):
        recover(shop.config, "shop")
    assert database.slots() == set()
    recover(shop.config, "shop", other_system=True)
    shop.change(300)
    shop.drain()
    shop.compact(spark)
    assert shop.lake_rows() == shop.source_rows()
    assert shop.cut().number == cycle + 2
    assert {c.severity for c in check_source(shop.config, "shop").findings} <= {Severity.NOTE, Severity.WARNING}
