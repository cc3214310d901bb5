"""The views that a refresh is asked for: one, several, all, and those whose sections of the configuration are wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakeproof.cli.main import main

_FILE = """
lake: lake
sources:
  shop: {dsn: "dbname=shop", tables: [public.orders]}
views:
  good: {sql: good.sql, reads: {orders: shop/public.orders}}
  gone: {sql: gone.sql, reads: {orders: shop/public.orders}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration with a view in order, and one whose file is not there."""
    (tmp_path / "good.sql").write_text("SELECT * FROM orders")
    path = tmp_path / "lakeproof.yaml"
    path.write_text(_FILE)
    return path


def test_the_others_of_a_view_with_a_mistake_are_looked_at(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All, and several by name, report that it stands still, with status 1; alone it is an error, and `check` refuses it."""
    for names in ([], ["good", "gone"]):
        assert main(["-c", str(file), "refresh", "--json", *names]) == 1
        still = {view["view"]: view["stands_still"] for view in json.loads(capsys.readouterr().out)}
        assert still.keys() == {"good", "gone"}
        assert "views.gone.sql" in still["gone"]
    assert main(["-c", str(file), "refresh", "gone"]) == 2
    assert "views.gone.sql" in capsys.readouterr().err
    assert main(["-c", str(file), "check"]) == 2
    assert "views.gone.sql" in capsys.readouterr().err


def test_a_source_s_commands_go_on_without_a_view_that_is_wrong(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A drain says so, and comes to its own matters: here that nothing was copied yet."""
    main(["-c", str(file), "drain", "shop", "--once"])
    errors = capsys.readouterr().err
    assert "without view gone" in errors
    assert "lakeproof bootstrap" in errors
