"""Held and new tables are copied without being asked: from a change in the source to a lake that is equal again."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.prove import prove
from lakeproof.config.load import load
from lakeproof.config.model import Config
from lakeproof.events import Stop, silent
from lakeproof.lake.records.held import WayOut
from lakeproof.lake.records.store import newest_cut
from lakeproof.names import TableName
from lakeproof.state.due_copies import recopy
from lakeproof.storage.source_lake import SourceLake
from orchestration.build import build
from orchestration.sensors import held_sensor
from resources import Settings
from tests.support.servers.fix_postgres import Database
from tests.support.shell.sample import password_of, write_source
from tests.support.spark.spark_steps import TABLES_ALONE, into_the_lake

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]
_REST = """\
    buckets: 16
    tables: [public.kept, public.retyped, public.came]
    snapshot: {held: copy, held_pause_s: 3600}
"""
RETYPED = TableName("public", "retyped")


def _begun(database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Two tables of three, copied as if it were long ago: what a table may be copied again is counted within a day."""
    database.execute(
        "CREATE TABLE kept (id int PRIMARY KEY, v int)",
        "CREATE TABLE retyped (id int PRIMARY KEY, v int)",
        "INSERT INTO kept SELECT i, i FROM generate_series(1, 20) i",
        "INSERT INTO retyped SELECT i, i FROM generate_series(1, 20) i",
        "CREATE PUBLICATION pub FOR TABLE kept, retyped",
    )
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    config = load(write_source(folder, database, _REST))
    long_ago = (datetime.now(timezone.utc) - timedelta(days=2)).isoformat()
    with monkeypatch.context() as then:
        then.setattr("lakeproof.snapshot.attempts.now_text", lambda: long_ago)  # inside: two days have not passed
        bootstrap(config, "shop", [TableName("public", "kept"), RETYPED])
    return config


def _look(config: Config, instance: dg.DagsterInstance) -> dg.SensorResult:
    settings = Settings(config_path=str(config.path))
    with dg.build_sensor_context(instance=instance, resources={"settings": settings}) as context:
        actual = held_sensor(config.source("shop"))(context)
    assert isinstance(actual, dg.SensorResult)
    # Why it did what it did stands in its row, too, beside the ticks.
    state = json.loads(actual.cursor or "")["state"]
    assert state == actual.skip_reason.skip_message if actual.skip_reason else state
    return actual


def _run(config: Config, instance: dg.DagsterInstance, request: dg.RunRequest) -> dict[str, str]:
    """The tables that the run copied, with the reason in their metadata."""
    chosen = list(request.asset_selection or ())
    job = build(config).resolve_job_def("shop_bootstrap")
    result = job.execute_in_process(instance=instance, run_config=request.run_config, asset_selection=chosen)
    created = (event.materialization for event in result.get_asset_materialization_events())
    return {each.asset_key.path[-1]: str(each.metadata["reason"].value) for each in created}


@pytest.mark.full
def test_held_and_new_tables_are_copied_and_equal_again(
    database: Database, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sensor starts a run of the two tables, with the reasons, and none if a table is held again within the hour."""
    config = _begun(database, tmp_path, monkeypatch)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        assert _look(config, instance).skip_reason is not None, "nothing is in the lake yet"
        compact(config, "shop", spark, silent, Stop())
        database.execute(
            "ALTER TABLE retyped ALTER v TYPE text",
            "UPDATE retyped SET v = 'x' WHERE id < 5",
            "CREATE TABLE came (id int PRIMARY KEY)",
            "INSERT INTO came VALUES (1), (2)",
            "ALTER PUBLICATION pub ADD TABLE came",
            "UPDATE kept SET v = 0 WHERE id < 5",
        )
        into_the_lake(config, spark)
        (request,) = _look(config, instance).run_requests or ()
        message = _run(config, instance, request)
        assert message.keys() == {"retyped", "came"}
        assert "public.came: it came into the publication" in message["came"]
        assert "public.retyped: a column has another type" in message["retyped"]
        assert not _look(config, instance).run_requests, "they wait for the next compaction"
        into_the_lake(config, spark)
        proof = prove(config, "shop", None, spark, request=TABLES_ALONE)
        assert {table.name: actual.status for table, actual in proof.tables.items()} == dict.fromkeys(
            ("kept", "retyped", "came"), "equal"
        )

        database.execute("ALTER TABLE retyped ALTER v TYPE int USING 1")
        into_the_lake(config, spark)
        now = datetime.now(timezone.utc)
        assert recopy(config, "shop", now).paused.keys() == {RETYPED}
        assert "public.retyped is copied again after" in str(_look(config, instance).skip_reason)
        assert recopy(config, "shop", now + timedelta(hours=2)).due.keys() == {RETYPED}

        bootstrap(config, "shop", [RETYPED])
        database.execute("ALTER TABLE retyped ALTER v TYPE text", "UPDATE retyped SET v = 'y' WHERE id < 5")
        into_the_lake(config, spark)
        later = now + timedelta(hours=9)
        assert recopy(config, "shop", later).due.keys() == {RETYPED}, "the copy came too late, and waits for nothing"

        database.execute("ALTER PUBLICATION pub DROP TABLE retyped")
        into_the_lake(config, spark)
        assert not recopy(config, "shop", later).due, "a copy of it would refuse, and so copy nothing"
        cut = newest_cut(SourceLake.open(config.lake, "shop"))
        assert cut is not None
        way_out = cut.held[RETYPED].way_out
        assert way_out is WayOut.PUBLISH_THEN_SNAPSHOT, "what held it first can't be mended so"
