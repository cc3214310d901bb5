"""Old runs of what a sensor keeps going are removed; an asset keeps its newest event, and other runs stay."""

import time
from pathlib import Path

import dagster as dg
from dagster import DagsterRunStatus

from jobs.names import SENSOR_TAG
from lakeproof.config.load import load
from orchestration.build import build
from orchestration.runs import old_runs_sensor

_YAML = """
lake: lake
sources:
  shop:
    dsn: host=localhost dbname=d
    publication: p
    slot: s
    tables: [public.a, public.b]
    compaction: {mode: continuous}
"""


def _config(folder: Path, more: str = "") -> Path:
    path = folder / "lakeproof.yaml"
    path.write_text(_YAML + more)
    return path


def _run(instance: dg.DagsterInstance, *tables: str, sensor: bool = True) -> str:
    """Run a job of the drain's name, which reports changes of these tables."""

    @dg.op
    def reports(context: dg.OpExecutionContext) -> None:
        for table in tables:
            context.log_event(dg.AssetMaterialization(["changes", "shop", "public", table]))

    @dg.job(name="shop_drain")
    def drain() -> None:
        reports()

    result = drain.execute_in_process(instance=instance, tags={SENSOR_TAG: "true"} if sensor else {})
    assert result.success
    return result.run_id


def _look(path: Path, instance: dg.DagsterInstance, now_s: float) -> str:
    keys = [dg.AssetKey(["changes", "shop", "public", table]) for table in ("a", "b")]
    (sensor,) = old_runs_sensor(load(path), {"shop_drain": keys}, clock=lambda: now_s)
    result = sensor(dg.build_sensor_context(instance=instance))
    assert isinstance(result, dg.SkipReason)
    return result.skip_message or ""


def test_ended_runs_go_and_each_asset_keeps_its_newest_event(tmp_path: Path) -> None:
    """The first run is not the newest of any table, the second is that of `b`."""
    path = _config(tmp_path, "dagster: {keep_runs_s: 3600}\n")
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        old = _run(instance, "a", "b")
        of_b = _run(instance, "b")
        by_hand = _run(instance, "a", sensor=False)
        newest = _run(instance, "a")
        assert _look(path, instance, time.time()) == "there is no old run"
        then_s = time.time()
        young = _run(instance)
        assert _look(path, instance, then_s + 3600) == "removed 1 old runs"
        left = {run.run_id for run in instance.get_runs()}
        assert left == {of_b, by_hand, newest, young}
        assert not instance.all_logs(old)
        event = instance.get_latest_materialization_event(dg.AssetKey(["changes", "shop", "public", "b"]))
        assert event is not None
        assert event.run_id == of_b
        assert instance.all_logs(of_b)
        assert _look(path, instance, then_s + 3600) == "there is no old run"


def test_a_run_in_progress_is_not_removed(tmp_path: Path) -> None:
    """However long ago it began."""
    path = _config(tmp_path, "dagster: {keep_runs_s: 3600}\n")
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        _run(instance)
        live = instance.create_run_for_job(
            dg.GraphDefinition(name="shop_drain").to_job(), status=DagsterRunStatus.STARTED, tags={SENSOR_TAG: "true"}
        )
        assert _look(path, instance, time.time() + 7200) == "removed 1 old runs"
        assert {r.run_id for r in instance.get_runs()} == {live.run_id}


def test_they_are_kept_for_ever_if_the_configuration_says_so(tmp_path: Path) -> None:
    """They are kept for a week by default, which the description says."""
    sensors = {s.name: s for s in build(load(_config(tmp_path))).sensors or ()}
    assert "more than 7 days ago" in (sensors["old_runs_sensor"].description or "")
    off = build(load(_config(tmp_path, "dagster: {keep_runs_s: 0}\n")))
    assert "old_runs_sensor" not in {s.name for s in off.sensors or ()}
