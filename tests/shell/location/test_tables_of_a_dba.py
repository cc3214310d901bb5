"""A publication that a DBA made for all tables: Dagster shows its tables once the lake knows them, with their comments."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.load import load
from lakeproof.descriptions import keep_source_descriptions
from lakeproof.lake.records.described import read_described
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from orchestration.build import build
from tests.support.servers.fix_postgres import Database
from tests.support.shell.sample import password_of, write_source

pytestmark = pytest.mark.postgres
ORDERS = TableName("public", "orders")


def test_tables_that_no_configuration_lists_are_shown_with_what_the_catalog_says(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first copy one asset says what to do; comments follow the source without a copy."""
    database.execute(
        "CREATE DOMAIN code AS varchar(12) NOT NULL",
        "CREATE TABLE orders (id int PRIMARY KEY, total numeric(12,2), tag code, secret text)",
        "CREATE TABLE log (n text)",
        "COMMENT ON TABLE orders IS 'One row per order'",
        "COMMENT ON COLUMN orders.total IS 'with tax'",
        "CREATE PUBLICATION pub FOR ALL TABLES WITH (publish = 'insert, truncate')",
    )
    path = write_source(tmp_path, database, "")
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    assert {key.to_user_string() for key in build(load(path)).resolve_asset_graph().get_all_asset_keys()} == {
        "postgres/shop"
    }
    bootstrap(load(path), "shop")
    defs = build(load(path))
    dg.Definitions.validate_loadable(defs)
    node = defs.resolve_asset_graph().get(dg.AssetKey(["postgres", "shop", "public", "orders"]))
    assert "One row per order" in (node.description or "")
    columns = {c.name: (c.type, c.constraints.nullable) for c in node.metadata["dagster/column_schema"].columns}
    assert columns == {
        "id": ("integer", False),
        "total": ("numeric(12,2)", True),
        "tag": ("public.code", False),
        "secret": ("text", True),
    }
    assert defs.resolve_job_def("shop_drain")

    lake = SourceLake.open(load(path).location, "shop")
    assert not keep_source_descriptions(load(path), "shop")
    database.execute("COMMENT ON COLUMN orders.total IS 'without tax'")
    assert keep_source_descriptions(load(path), "shop")
    assert [c.comment for c in read_described(lake)[ORDERS].columns] == [None, "without tax", None, None]
    lake.store.put(lake.paths.descriptions, b"damaged")
    assert read_described(lake) == {}
    assert build(load(path)).resolve_asset_graph()
