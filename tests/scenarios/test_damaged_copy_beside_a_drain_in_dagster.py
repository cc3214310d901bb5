"""A document of a copy is damaged: Dagster's drain goes on like the command's, or the slot would keep the log for ever."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from assets.changes import DrainRun
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.load import load
from orchestration.build import build
from tests.support.servers.fix_postgres import Database
from tests.support.shell.sample import password_of, write_source

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("run", [DrainRun(), DrainRun(until="max_seconds", max_seconds=3)], ids=["person", "sensor"])
def test_the_drain_goes_on_and_its_events_are_written(
    run: DrainRun, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copies' own events are for people, and are what is missing."""
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE orders")
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    path = write_source(tmp_path, database, "    tables: [public.orders]\n")
    bootstrap(load(path), "shop")
    database.execute("INSERT INTO orders VALUES (1), (2)")
    (part,) = (tmp_path / "lake" / "shop").rglob("snapshot-*.json")
    part.write_text("{", encoding="utf-8")
    with dg.DagsterInstance.ephemeral() as instance:
        job = build(load(path)).resolve_job_def("shop_drain")
        assert job.execute_in_process(instance=instance, run_config=dg.RunConfig(ops={"drain_shop": run})).success
        key = dg.AssetKey(["changes", "shop", "public", "orders"])
        records = instance.fetch_materializations(key, limit=10).records
    events = [record.asset_materialization for record in records]
    assert sum(int(str(event.metadata["inserts"].value)) for event in events if event is not None) == 2
