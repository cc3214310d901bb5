"""A lake of a table whose rows and columns are published in part: equal to that part, also after the part has changed."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.commands.publish import apply, plan
from lakeproof.config.load import load
from lakeproof.config.model import Config
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.names import TableName
from lakeproof.state.due_copies import recopy
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.since(15)]
ORDERS = TableName("public", "orders")


def _config(database: Database, folder: Path, part: str) -> Config:
    file = folder / "lakeproof.yaml"
    file.write_text(
        f"lake: {folder}/lake\nsources:\n  shop:\n    dsn: {{env: SHOP_DSN}}\n    publication: pub\n"
        f"    slot: {database.name}\n    buckets: 16\n    tables: [public.orders, public.whole]\n"
        f"    table: {{public.orders: {{{part}}}}}\n"
    )
    config = load(file)
    apply(config, "shop", plan(config, "shop"))
    assert plan(config, "shop").statements == ()
    return config


def _statuses(config: Config, spark: SparkSession) -> dict[str, str]:
    return {
        t.name: proof.status for t, proof in prove(config, "shop", None, spark, request=TABLES_ALONE).tables.items()
    }


def _lake_rows(config: Config) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in read_lake(config).table("shop", ORDERS).arrow().to_pylist())


@pytest.mark.full
def test_the_lake_has_the_published_part_and_follows_when_it_changes(
    database: Database, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another condition and list hold the table until it is copied; the other table goes on, and both end equal."""
    monkeypatch.setenv("SHOP_DSN", database.dsn)
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, country text, note text)",
        "CREATE TABLE whole (id int PRIMARY KEY, v int)",
        "INSERT INTO orders SELECT i, 'c' || i % 3, 'n' FROM generate_series(1, 40) i",
        "INSERT INTO whole SELECT i, i FROM generate_series(1, 20) i",
    )
    config = _config(database, tmp_path, "rows: id <= 30, without: [note]")
    bootstrap(config, "shop")
    database.execute(
        "UPDATE orders SET id = id + 100 WHERE id = 30",  # it leaves the part
        "UPDATE orders SET id = 0, country = 'x' WHERE id = 31",  # it comes into it
        "DELETE FROM orders WHERE id IN (3, 35)",
        "INSERT INTO orders VALUES (-1, 'y', NULL), (200, 'z', NULL)",
    )
    assert _statuses(config, spark) == {"orders": "equal", "whole": "equal"}
    assert _lake_rows(config) == database.rows("SELECT id, country FROM orders WHERE id <= 30 ORDER BY 1")
    config = _config(database, tmp_path, "rows: id > 10, columns: [id, note]")
    database.execute("UPDATE orders SET note = 'm' WHERE id % 2 = 0", "UPDATE whole SET v = 0")
    assert _statuses(config, spark) == {"orders": "held", "whole": "equal"}
    due = recopy(config, "shop", datetime.now(timezone.utc)).due
    assert "row filter" in due[ORDERS]
    assert "column list" in due[ORDERS]
    bootstrap(config, "shop", list(due))
    database.execute("UPDATE orders SET note = 'after' WHERE id = 12", "DELETE FROM orders WHERE id IN (5, 14)")
    assert _statuses(config, spark) == {"orders": "equal", "whole": "equal"}
    assert _lake_rows(config) == database.rows("SELECT id, note FROM orders WHERE id > 10 ORDER BY 1")
