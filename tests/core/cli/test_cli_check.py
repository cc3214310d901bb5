"""The page of `lakeproof check`, from what the step found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lakeproof.cli import source_commands
from lakeproof.commands import check as step
from lakeproof.config.load import load
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.postgres.checks.findings import error, note
from lakeproof.postgres.server import ServerIdentity

SERVER = ServerIdentity("7300000000000000001", 1, "app", 16384, 180006, Lsn(1), in_recovery=False)
TABLE = step.TableSummary(
    name=TableName("shop", "orders"),
    identity="default",
    key=("id",),
    columns=3,
    exact_text_columns=("status",),
    actions=("insert", "update"),
    pages=1000,
    kept="history only",
)


def test_every_table_has_its_line_with_an_estimate_of_its_size(tmp_path: Path) -> None:
    """Findings first, then the tables as they would be kept."""
    actual = step.CheckReport("shop", SERVER, None, ("pub",), (TABLE,), (note("table shop.orders", "small", "none"),))
    file = tmp_path / "lakeproof.yaml"
    file.write_text(f"lake: {tmp_path}\nsources:\n  shop: {{dsn: host=nowhere dbname=x}}\n")
    outcome = source_commands.checked(load(file), {"shop": actual})
    assert outcome.status == 0
    assert "source shop: PostgreSQL 18, ready" in outcome.text
    of_source, of_lake, of_spark = outcome.text.split("\n\n")[-3:]
    assert (of_lake.startswith(f"lake: {tmp_path}, "), of_spark.startswith("spark: Java ")) == (True, True)
    assert of_source.splitlines()[-1].split() == [
        "shop.orders", "history", "only", "default", "id", "3", "1", "8.2", "MB", "insert,", "update",
    ]  # fmt: skip


def test_tables_with_one_fault_share_a_line_and_a_filter_is_shown(tmp_path: Path) -> None:
    """A hundred tables of one schema that the role may not use have one remedy."""
    grant = "GRANT USAGE ON SCHEMA shop TO lakeproof"
    tables = [TableName("shop", f"t{number}") for number in range(7)]
    refused = [error(table, "role lakeproof may not use its schema", grant) for table in tables]
    filtered = replace(TABLE, row_filter="(total > 0)")
    file = tmp_path / "lakeproof.yaml"
    file.write_text(f"lake: {tmp_path}\nsources:\n  shop: {{dsn: host=nowhere dbname=x}}\n")
    report = step.CheckReport("shop", SERVER, None, ("pub",), (filtered,), (*refused, note("slot s", "x", "y")))
    text = source_commands.checked(load(file), {"shop": report}).text
    assert text.count(grant) == 1
    assert "tables shop.t0, shop.t1, shop.t2, shop.t3, shop.t4 and 2 more: role" in text
    assert "shop.orders: only rows with (total > 0)" in text
