"""Days in Dagster: partitions that a backfill from the UI fills in one run, and what a day before the first copy says.

The rows of days are compared in `tests/scenarios/test_daily.py`, over several days of a simulated clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.daily import daily
from lakeproof.config.load import load
from lakeproof.errors import LakeError
from lakeproof.events import RunControl
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.storage.document import canonical
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import text_of_time, time_of
from orchestration.build import build
from resources import Settings
from tests.support.servers.fix_postgres import Database
from tests.support.shell.days import today_with
from tests.support.shell.launched import Dagster, dagster
from tests.support.shell.sample import password_of, write_source
from tests.support.shell.shared_spark import SharedSpark

pytestmark = [pytest.mark.spark, pytest.mark.postgres]
_REST = """\
    compaction: {mode: scheduled}
    tables: [shop.orders, shop.lines]
    daily: [shop.*]
"""


@pytest.fixture
def config(database: Database, tmp_path: Path) -> Iterator[Path]:
    """Two published tables, both kept for each day."""
    database.execute(
        "CREATE SCHEMA shop",
        'CREATE TABLE shop.orders (id int PRIMARY KEY, "the note" text)',
        "CREATE TABLE shop.lines (id int PRIMARY KEY, day date)",
        "INSERT INTO shop.orders SELECT n, 'note ' || n FROM generate_series(1, 50) AS n",
        "CREATE PUBLICATION pub FOR TABLE shop.orders, shop.lines",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LP_SHELL_PASSWORD", password_of(database))
        yield write_source(tmp_path, database, _REST)


def _run(
    config: Path, instance: dg.DagsterInstance, job: str, compute: SharedSpark | None = None, **more: Any
) -> dg.ExecuteInProcessResult:
    definition = build(load(config)).resolve_job_def(job)
    needed = {"compute": compute or SharedSpark(config_path=str(config))}
    resources = needed if "compute" in definition.required_resource_keys else None
    return definition.execute_in_process(instance=instance, resources=resources, raise_on_error=False, **more)


@pytest.mark.full
def test_today_is_filled_and_a_day_before_the_first_copy_is_refused(
    config: Path, database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    """Both tables in one run; PostgreSQL has the same rows; the error names the oldest day."""
    today = today_with(minutes=5)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        for job in ("shop_bootstrap", "shop_drain", "shop_compaction"):
            assert _run(config, instance, job).success
        database.execute("INSERT INTO shop.lines VALUES (1, '2020-02-02')", "DELETE FROM shop.orders WHERE id > 40")
        for job in ("shop_drain", "shop_compaction"):
            assert _run(config, instance, job).success
        filled = _run(config, instance, "shop_daily", partition_key=today.isoformat())
        assert filled.success
        events = {
            (
                event.asset_key.to_user_string(),
                event.partition,
            ): event.step_materialization_data.materialization.metadata
            for event in filled.get_asset_materialization_events()
            if event.asset_key is not None
        }
        orders = events["daily/shop/shop/orders", today.isoformat()]
        assert orders["dagster/partition_row_count"].value == 40
        assert {"position", "position_int", "is_over"} <= orders.keys()
        assert [check.passed for check in filled.get_asset_check_evaluations()] == [True] * 2, (
            "the first day fails nobody"
        )
        lake = SourceLake.open(load(config).location, "shop")
        for name, day, columns in (("orders", "day", '"the note"'), ("lines", "day_", "day")):
            rows = spark.read.format("delta").load(lake.url(f"shop/daily/shop/{name}")).where(f"{day} = '{today}'")
            expected = database.rows(f"SELECT id, {columns} FROM shop.{name} ORDER BY id")  # noqa: S608  (of this test)
            assert [tuple(row) for row in rows.drop(day).orderBy("id").collect()] == [tuple(row) for row in expected]
        early = today - timedelta(days=3)
        with pytest.raises(LakeError, match=f"the oldest day is {today}"):
            daily(load(config), "shop", [early, today], spark, RunControl())


@pytest.mark.full
def test_the_schedule_makes_the_days_that_have_ended_and_rests_until_the_next(config: Path, tmp_path: Path) -> None:
    """All in one run; a run that failed is not tried again at once, since a day that can't be made fails each."""
    today = today_with(minutes=5)
    days = [(today - timedelta(days=n)).isoformat() for n in (2, 1)]

    def tick(instance: dg.DagsterInstance) -> dg.ScheduleExecutionData:
        schedule = build(load(config)).resolve_schedule_def("shop_daily_schedule")
        with dg.build_schedule_context(instance, resources={"settings": Settings(config_path=str(config))}) as context:
            return schedule.evaluate_tick(context)

    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        for job in ("shop_bootstrap", "shop_drain", "shop_compaction"):
            assert _run(config, instance, job).success
        assert "no day of the last week is due" in str(tick(instance).skip_message)
        _copied_earlier(config, 2)
        requests = tick(instance).run_requests
        assert requests is not None
        (request,) = requests
        assert set(request.asset_selection or ()) == {
            dg.AssetKey(["daily", "shop", "shop", t]) for t in ("orders", "lines")
        }
        tags = request.tags
        assert not _run(config, instance, "shop_daily", compute=_Broken(config_path=str(config)), tags=tags).success
        assert "the last run failed; the next try is at" in str(tick(instance).skip_message)
        assert _run(config, instance, "shop_daily", tags=tags).success
        for table in ("orders", "lines"):
            key = dg.AssetKey(["daily", "shop", "shop", table])
            assert instance.get_materialized_partitions(key) == set(days)
        # Nothing has been committed since the first copy: both days are made anew once something is.
        assert "no day of the last week is due" in str(tick(instance).skip_message)


class _Broken(SharedSpark):
    """A session that does not start."""

    @property
    def on_demand(self) -> SparkOnDemand:
        def start() -> NoReturn:
            raise LakeError("Spark", "its driver did not start", "give it room")

        return SparkOnDemand(start)


def _copied_earlier(config: Path, days: int) -> None:
    """Move the first copy's beginning back in its documents: days that nobody can wait for."""
    for document in Path(load(config).lake).glob("shop/snapshots/*/*/*.json"):
        fields = json.loads(document.read_bytes())
        if "started_at" in fields:
            fields["started_at"] = text_of_time(time_of(fields["started_at"]) - timedelta(days=days))
            document.write_bytes(canonical(fields))


@pytest.mark.full
@pytest.mark.slow
def test_a_backfill_over_days_is_one_run_and_a_copy_of_two_tables_one_snapshot(
    config: Path, database: Database, tmp_path: Path
) -> None:
    """Launched over GraphQL as the UI does, into processes of their own."""
    database.execute("CREATE TABLE shop.more (id int PRIMARY KEY)", "ALTER PUBLICATION pub ADD TABLE shop.more")
    config.write_text(config.read_text().replace("shop.lines]", "shop.lines, shop.more]"))
    today = today_with(minutes=5)
    days = [(today - timedelta(days=n)).isoformat() for n in (2, 1, 0)]
    with dagster(tmp_path / "first", config) as shown:
        for job in ("shop_bootstrap", "shop_drain", "shop_compaction"):
            assert shown.launch(job).status is dg.DagsterRunStatus.SUCCESS
        chosen = [f"snapshot/shop/shop/{table}" for table in ("orders", "lines")]
        again = shown.launch("__ASSET_JOB", chosen, ops={"snapshot_shop": {"copy_again": True}})
        assert again.status is dg.DagsterRunStatus.SUCCESS
        points = [_newest(shown, key)["consistent_point"] for key in (*chosen, "snapshot/shop/shop/more")]
        assert points[0] == points[1] != points[2]
    _copied_earlier(config, 2)
    keys = ["daily/shop/shop/orders", "daily/shop/shop/lines"]
    with dagster(tmp_path / "second", config) as shown:
        (run,) = shown.backfill(keys, days)
        assert run.status is dg.DagsterRunStatus.SUCCESS
        for key in keys:
            path = dg.AssetKey(key.split("/"))
            assert shown.instance.get_materialized_partitions(path) == set(days)
            assert shown.shown(key) == {"adds_up": "green"}
        assert _newest(shown, keys[0])["dagster/partition_row_count"] == 50


def _newest(shown: Dagster, key: str) -> dict[str, Any]:
    event = shown.instance.get_latest_materialization_event(dg.AssetKey(key.split("/")))
    assert event is not None
    assert event.asset_materialization is not None
    return {name: value.value for name, value in event.asset_materialization.metadata.items()}
