"""The demonstration's drain ends as a success: the first run that a newcomer sees is not canceled, and no step is red."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.load import load
from lakeproof.landing.chain import Chain
from lakeproof.storage.source_lake import SourceLake
from tests.support.ingest.fix_drain import wait_until
from tests.support.servers.fix_postgres import Database
from tests.support.shell.sample import password_of, write_source

pytestmark = pytest.mark.postgres
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.full
def test_the_drain_that_is_asked_to_end_by_a_file_succeeds(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has read is durable, confirmed to the slot, and in the asset's events."""
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE orders")
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    path, home, end = (
        write_source(tmp_path, database, "    tables: [public.orders]\n"),
        tmp_path / "home",
        tmp_path / "end",
    )
    bootstrap(load(path), "shop")
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    drain = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "demo.drain", str(path), "shop", str(end)],
        cwd=ROOT,
        env={**os.environ, "DAGSTER_HOME": str(home)},
    )
    try:
        database.execute("INSERT INTO orders VALUES (1), (2)")
        chain = Chain.open_newest(SourceLake.open(load(path).location, "shop"))
        assert chain is not None

        def landed() -> bool:
            chain.refresh()
            return any(manifest.rows for manifest in chain.manifests())

        wait_until(lambda: drain.poll() is not None or landed(), timeout_s=120)
        end.touch()
        assert drain.wait(60) == 0
    finally:
        drain.kill()
        drain.wait()
    with dg.DagsterInstance.from_config(str(home)) as instance:
        (record,) = instance.get_run_records()
        assert record.dagster_run.status is dg.DagsterRunStatus.SUCCESS
        event = instance.get_latest_materialization_event(dg.AssetKey(["changes", "shop", "public", "orders"]))
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.metadata["inserts"].value == 2
