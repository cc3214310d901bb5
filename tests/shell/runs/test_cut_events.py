"""A compaction reports a table once at the newest cut, with the changes of its own cycles.

How often a long run writes an event belongs to `test_cut_throttle.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakeproof.cli.main import main
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.drain import drain
from lakeproof.config.load import load
from lakeproof.config.model import Config
from lakeproof.drain.until import Until
from lakeproof.lake.records.store import newest_cut
from lakeproof.storage.source_lake import SourceLake
from tests.support.ingest.fix_drain import wait_until
from tests.support.servers.fix_postgres import Database
from tests.support.shell.elsewhere import HERE
from tests.support.shell.launched import Dagster, dagster
from tests.support.shell.sample import password_of, write_source

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
_REST = "    buckets: 16\n    tables: [public.orders, public.lines]\n"
_LAYERS = ("history", "current")


@dataclass
class Shop:
    """Two tables, their lake, and the Dagster that shows them."""

    database: Database
    config: Config
    running: Dagster

    def change(self, rows: int) -> None:
        """Insert so many rows into one of the tables, and land them."""
        self.database.execute(f"INSERT INTO orders (note) SELECT 'n' FROM generate_series(1, {rows})")  # noqa: S608  a number
        drain(self.config, "shop", Until.caught_up())

    @property
    def newest(self) -> int:
        """The number of the newest cut."""
        cut = newest_cut(SourceLake.open(self.config.location, "shop"))
        return 0 if cut is None else int(cut.number)

    def events(self, table: str, layer: str = "current") -> list[dict[str, Any]]:
        """The metadata of each event of a table, oldest first."""
        key = dg.AssetKey([layer, "shop", "public", table])
        records = self.running.instance.fetch_materializations(key, limit=1000, ascending=True).records
        of = [r.asset_materialization for r in records if r.asset_materialization]
        return [{name: value.value for name, value in each.metadata.items()} for each in of]


def _config(database: Database, folder: Path, compute: str = "") -> Config:
    for table in ("orders", "lines"):
        database.execute(f"CREATE TABLE {table} (id serial PRIMARY KEY, note text)")
    database.execute("INSERT INTO orders (note) VALUES ('first')", "CREATE PUBLICATION pub FOR TABLE orders, lines")
    config = load(write_source(folder, database, _REST + compute))
    bootstrap(config, "shop")
    return config


def _wait_for_a_cut_after(shop: Shop, before: int) -> None:
    wait_until(lambda: shop.newest > before, timeout_s=120)


@pytest.mark.parametrize("place", ["here", pytest.param("elsewhere", marks=pytest.mark.full)])
def test_a_run_that_lasts_reports_its_changes_once_wherever_its_work_is_done(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Each event stands at the newest cut, a table without changes has one, and ending the run loses none.

    What a command has compacted before counts in no run, and is in the rows and the position of the next event.
    """
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    config = _config(database, tmp_path, "" if place == "here" else f"compute: {{command: {HERE}}}\n")
    with dagster(tmp_path / "dagster", config.path) as running:
        shop = Shop(database, config, running)
        assert main(["--config", str(config.path), "compact", "shop"]) == 0
        shop.change(2)
        assert main(["--config", str(config.path), "compact", "shop"]) == 0
        options = {
            "compact_shop": {"until": "max_seconds", "max_seconds": 600, "event_seconds": 5, "report": "changed"}
        }
        run_id = running.start("shop_compaction", ops=options)
        wait_until(lambda: len(shop.events("orders")) == 1, timeout_s=120)
        (first,) = shop.events("orders")
        assert (first["changes"], first["dagster/row_count"], first["cut"]) == (0, 3, shop.newest)
        for rows in (3, 4, 5):
            before = shop.newest
            shop.change(rows)
            _wait_for_a_cut_after(shop, before)
        wait_until(lambda: sum(each["changes"] for each in shop.events("orders")) >= 3, timeout_s=60)
        running.instance.run_launcher.terminate(run_id)
        running.ended(run_id)
        for layer in _LAYERS:
            events = shop.events("orders", layer)
            assert sum(each["changes"] for each in events) == 3 + 4 + 5, layer
            cuts = [each["cut"] for each in events]
            assert cuts == sorted(cuts), layer
            assert cuts[-1] == shop.newest, layer
            assert len(shop.events("lines", layer)) == 1, layer
        assert shop.events("orders")[-1]["dagster/row_count"] == database.rows("SELECT count(*) FROM orders")[0][0]


@pytest.mark.full
def test_a_run_that_ends_reports_each_table_once(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person's run reports every table; a schedule's reports those that its own cycles have written, at the newest cut."""
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    config = _config(database, tmp_path)
    with dagster(tmp_path / "dagster", config.path) as running:
        shop = Shop(database, config, running)
        assert running.launch("shop_compaction").status is dg.DagsterRunStatus.SUCCESS
        shop.change(3)
        run = running.launch("shop_compaction", ops={"compact_shop": {"report": "changed"}})
        assert run.status is dg.DagsterRunStatus.SUCCESS
        for layer in _LAYERS:
            assert [each["changes"] for each in shop.events("orders", layer)] == [0, 3]
            assert len(shop.events("lines", layer)) == 1
        assert shop.events("orders")[-1]["cut"] == shop.newest
        assert shop.events("orders")[-1]["dagster/row_count"] == 4
