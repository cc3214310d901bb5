"""The location of a configuration with a group: its sources have one compaction, and everything else by themselves."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from orchestration.location import location

_YAML = """\
lake: lake
sources:
  one:
    dsn: host=127.0.0.1 port=1 dbname=shop user=u
    tables: [public.a]
    compaction: {mode: scheduled, interval_s: 300}
  two: {dsn: "host=127.0.0.1 port=1 dbname=shop user=u", tables: [public.b], compaction: {interval_s: 120}}
  crm: {dsn: "host=127.0.0.1 port=1 dbname=crm user=u", tables: [public.c]}
groups:
  shop: [one, two]
"""


@pytest.fixture
def defs(tmp_path: Path) -> dg.Definitions:
    """The location, validated as Dagster does when it loads it."""
    file = tmp_path / "lakeproof.yaml"
    file.write_text(_YAML, encoding="utf-8")
    result = location(file)
    dg.Definitions.validate_loadable(result)
    return result


def test_the_sources_of_a_group_have_one_compaction(defs: dg.Definitions) -> None:
    """One job and one schedule, as often as the most frequent of them; no source of it has one of its own."""
    jobs = {job.name for job in defs.resolve_all_job_defs()}
    assert {name for name in jobs if name.endswith("_compaction")} == {"shop_compaction", "crm_compaction"}
    assert {"one_bootstrap", "one_drain", "one_maintenance", "one_verification", "one_slot", "two_drain"} <= jobs
    keys = {key.to_user_string() for key in defs.resolve_job_def("shop_compaction").asset_layer.selected_asset_keys}
    assert keys == {
        f"{layer}/{table}" for layer in ("history", "current") for table in ("one/public/a", "two/public/b")
    }
    schedules = {
        schedule.name: schedule.cron_schedule
        for schedule in defs.schedules or ()
        if isinstance(schedule, dg.ScheduleDefinition)
    }
    assert schedules["shop_compaction_schedule"] == "*/2 * * * *"
    assert "one_compaction_schedule" not in schedules
    assert {s.name for s in defs.sensors or () if "compaction" in s.name} == {"crm_compaction_sensor"}
