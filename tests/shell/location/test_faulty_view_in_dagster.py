"""A location whose configuration has a mistake in one view: everything else of it is there, and the view is named."""

from __future__ import annotations

import logging
from pathlib import Path

import dagster as dg
import pytest

from orchestration.component import SourceComponent

_FILE = """
lake: lake
sources:
  shop: {dsn: "dbname=shop", tables: [public.orders]}
views:
  good: {sql: good.sql, reads: {orders: shop/public.orders}}
  gone: {sql: gone.sql, reads: {orders: shop/public.orders}}
"""


def test_the_drain_of_a_source_is_there_without_a_view_that_is_wrong(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The location did not load at all: at its next start the drain of the source could not begin."""
    (tmp_path / "good.sql").write_text("SELECT * FROM orders")
    (tmp_path / "lakeproof.yaml").write_text(_FILE)
    with caplog.at_level(logging.WARNING):
        defs = SourceComponent(config="lakeproof.yaml", sources=None).definitions(tmp_path)
    keys = {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}
    assert defs.resolve_job_def("shop_drain")
    assert any(key.endswith("good") for key in keys)
    assert not any(key.endswith("gone") for key in keys)
    assert "without view gone" in caplog.text
    dg.Definitions.validate_loadable(defs)
