"""Alerts about tables, against a server that receives them: a table is held, a table is too old, and it is over.

The ways in which a message is sent, and what is sent again, belong to `test_alert_sensor.py` and `test_alert_policy.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.config.load import load
from lakeproof.names import TableName
from orchestration.alerts import alert_sensor, watched_by_alerts
from orchestration.build import build
from resources import Settings
from tests.support.servers.fix_postgres import Database
from tests.support.shell.launched import dagster
from tests.support.shell.receivers import Posts, http_receiver
from tests.support.shell.sample import password_of, write_source
from tests.support.spark.spark_steps import TABLES_ALONE, into_the_lake

pytestmark = [pytest.mark.postgres]
_REST = """\
    buckets: 16
    tables: [public.retyped, public.kept]
    freshness: {changes_s: 600, current_s: 0, proof_s: 0}
alerts:
  webhook: {url: {env: LP_HOOK}}
  ui: https://dagster.example.org/
  least: warn
"""
_CHANGES = dg.AssetKey(["changes", "shop", "public", "kept"])


@dataclass
class Alerts:
    """The sensor of a location, whose clock the test sets, and what has come to the webhook."""

    path: Path
    posts: Posts
    now: float
    cursor: str | None = None

    def tick(self, instance: dg.DagsterInstance, kind: str) -> list[tuple[str, str, str, str]]:
        """Look half a minute later; the lines of this kind that came, as event, severity, title and text."""
        self.now += 30
        before = len(self.posts.documents("/hook"))
        config = load(self.path)
        defs = build(config)
        names = watched_by_alerts(config, [], [a for a in defs.assets or () if isinstance(a, dg.AssetsDefinition)])
        (sensor,) = alert_sensor(config, names, lambda: self.now)
        resources = {"settings": Settings(config_path=str(self.path))}
        with dg.build_sensor_context(instance, self.cursor, resources=resources, definitions=defs) as context:
            result = sensor(context)
        assert isinstance(result, dg.SensorResult)
        self.cursor = result.cursor
        lines: list[dict[str, Any]] = [
            line for document in self.posts.documents("/hook")[before:] for line in document["messages"]
        ]
        return [
            (line["event"], line["severity"], line["title"], line["text"]) for line in lines if line["kind"] == kind
        ]


@pytest.fixture
def alerts(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Alerts]:
    """A source with two tables and their first copy."""
    database.execute(
        "CREATE TABLE kept (id int PRIMARY KEY, v int)",
        "CREATE TABLE retyped (id int PRIMARY KEY, v int)",
        "INSERT INTO retyped SELECT i, i FROM generate_series(1, 20) i",
        "CREATE PUBLICATION pub FOR TABLE kept, retyped",
    )
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    with http_receiver() as posts:
        monkeypatch.setenv("LP_HOOK", f"http://127.0.0.1:{posts.port}/hook")
        path = write_source(tmp_path, database, _REST)
        bootstrap(load(path), "shop")
        yield Alerts(path, posts, time.time())


@pytest.mark.full
@pytest.mark.spark
def test_a_held_table_is_reported_with_reason_and_remedy_until_it_goes_on(
    database: Database, alerts: Alerts, spark: SparkSession
) -> None:
    """The other table goes on meanwhile; after a new copy both are equal to the source."""
    config = load(alerts.path)
    with dg.DagsterInstance.ephemeral() as instance:
        into_the_lake(config, spark)
        assert alerts.tick(instance, "held") == []
        database.execute("ALTER TABLE retyped ALTER v TYPE text", "UPDATE retyped SET v = 'x' WHERE id < 5")
        into_the_lake(config, spark)
        ((event, severity, title, text),) = alerts.tick(instance, "held")
        assert (event, severity, title) == ("problem", "error", "shop: public.retyped is held")
        assert "a column has another type" in text
        assert "lakeproof bootstrap shop --tables public.retyped" in text
        assert alerts.tick(instance, "held") == []
        bootstrap(config, "shop", [TableName("public", "retyped")])
        into_the_lake(config, spark)
        over = [line for _ in range(4) for line in alerts.tick(instance, "held")]
        assert [(line[0], line[2]) for line in over] == [("over", "shop: public.retyped is held")]
    proof = prove(config, "shop", None, spark, request=TABLES_ALONE)
    assert {outcome.status for outcome in proof.tables.values()} == {"equal"}


@pytest.mark.full
def test_an_asset_that_is_too_old_is_reported_as_dagsters_daemon_finds_it(alerts: Alerts, tmp_path: Path) -> None:
    """After half of its window a warning, after all of it an error, and its next event ends it."""
    with dagster(tmp_path / "dagster", alerts.path) as running:
        running.instance.report_runless_asset_event(dg.AssetMaterialization(_CHANGES))
        began = time.time()
        running.look_at_ages(began + 60)
        assert alerts.tick(running.instance, "freshness") == []
        running.look_at_ages(began + 400)
        title = "changes/shop/public/kept is too old"
        assert [line[:3] for line in alerts.tick(running.instance, "freshness")] == [("problem", "warn", title)]
        running.look_at_ages(began + 700)
        assert [line[:3] for line in alerts.tick(running.instance, "freshness")] == [("worse", "error", title)]
        assert alerts.tick(running.instance, "freshness") == []
        running.instance.report_runless_asset_event(dg.AssetMaterialization(_CHANGES))
        running.look_at_ages(time.time() + 60)
        over = [line for _ in range(4) for line in alerts.tick(running.instance, "freshness")]
        assert [(line[0], line[2]) for line in over] == [("over", title)]
