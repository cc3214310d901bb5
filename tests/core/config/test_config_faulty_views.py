"""A mistake in one view's section is the view's: the sources and the other views of the file go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeproof.config.load import load
from lakeproof.config.mistakes import ConfigFileError

_FILE = """
lake: lake
sources:
  shop: {dsn: "dbname=shop", tables: [public.orders]}
views:
  good: {sql: good.sql, reads: {orders: shop/public.orders}}
  gone: {sql: gone.sql, reads: {orders: shop/public.orders}}
  key: {sql: good.sql, reads: {orders: shop/public.orders}, refersh: full}
  table: {sql: good.sql, reads: {orders: shop/public.ordres}}
  above: {sql: good.sql, reads: {orders: {view: gone}}}
  higher: {sql: good.sql, reads: {orders: {view: above}}}
  one: {sql: good.sql, reads: {orders: {view: other}}}
  other: {sql: good.sql, reads: {orders: {view: one}}}
  ghost: {sql: good.sql, reads: {orders: {view: nobody}}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration with a view in order, and one with each kind of mistake."""
    (tmp_path / "good.sql").write_text("SELECT * FROM orders")
    path = tmp_path / "lakeproof.yaml"
    path.write_text(_FILE)
    return path


def test_views_with_mistakes_are_set_aside_with_those_that_read_them(file: Path) -> None:
    """Each has its own reason; by itself the file is refused with all of them."""
    config = load(file, set_views_aside=True)
    assert list(config.views) == ["good"]
    assert list(config.sources) == ["shop"]
    assert config.faulty_views.keys() == {"gone", "key", "table", "above", "higher", "one", "other", "ghost"}
    assert "did you mean refresh" in config.faulty_views["key"].reason
    assert "reads gone, which has a mistake" in config.faulty_views["above"].reason
    with pytest.raises(ConfigFileError) as refused:
        load(file)
    assert {mistake.path.split(".")[1] for mistake in refused.value.mistakes} >= {"gone", "key", "table", "ghost"}


def test_a_mistake_of_a_source_is_refused_beside_those_of_views(file: Path) -> None:
    """All that is not about one view concerns everybody."""
    file.write_text(_FILE.replace("tables: [", "tabels: ["))
    with pytest.raises(ConfigFileError) as refused:
        load(file, set_views_aside=True)
    assert [mistake.path for mistake in refused.value.mistakes] == ["sources.shop.tabels"]
