"""Ages that are too old, events of quiet tables, what starts by itself, and views by a condition."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from assets.changes import KeepsUp
from assets.support.pace import Throttle
from lakeproof.config.load import load
from lakeproof.errors import ConfigError, TransientError
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.postgres.replication_slot import SlotState
from lakeproof.state.problem import Problem
from lakeproof.state.slot import SlotStatus
from orchestration.build import build, start_of

A, B = TableName("public", "a"), TableName("public", "b")
_YAML = """\
lake: lake
dagster: {start: stopped, views: condition}
sources:
  shop:
    dsn: "host=127.0.0.1 port=1 dbname=shop user=u"
    tables: [public.a, public.b]
    freshness: {changes_s: 600, proof_s: 0}
    table: {public.b: {freshness: {changes_s: 0, current_s: 900}}}
    compaction: {mode: scheduled}
views:
  v: {sql: v.sql, reads: {a: shop/public.a}, freshness_s: 3600}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The configuration above."""
    (tmp_path / "v.sql").write_text("SELECT id FROM a\n", encoding="utf-8")
    (tmp_path / "lakeproof.yaml").write_text(_YAML, encoding="utf-8")
    return tmp_path / "lakeproof.yaml"


def test_a_policy_is_the_tables_own_else_its_sources_else_the_modes(path: Path) -> None:
    """A scheduled compaction that has nothing to do runs not at all, so its tables may be of any age."""
    graph = build(load(path)).resolve_asset_graph()
    windows = {}
    for key in graph.get_all_asset_keys():
        policy = graph.get(key).freshness_policy
        if policy is not None:
            assert isinstance(policy, dg.FreshnessPolicy)
            windows[key.to_user_string()] = getattr(policy, "fail_window").to_timedelta()  # noqa: B009  of its subclass
    assert windows == {
        "changes/shop/public/a": timedelta(minutes=10),
        "current/shop/public/b": timedelta(minutes=15),
        "slots/shop": timedelta(hours=1),
        "views/v": timedelta(hours=1),
    }


def test_nothing_starts_by_itself_if_the_configuration_or_the_environment_says_so(path: Path) -> None:
    """The environment wins: the same file is on for the service and off for a colleague."""
    defs = build(load(path))
    assert {sensor.default_status.value for sensor in defs.sensors or ()} == {"STOPPED"}
    schedules = [s for s in defs.schedules or () if isinstance(s, dg.ScheduleDefinition)]
    assert {schedule.default_status.value for schedule in schedules} == {"STOPPED"}
    assert start_of(load(path), {"LAKEPROOF_START": "running"}) == "RUNNING"
    with pytest.raises(ConfigError, match="LAKEPROOF_START"):
        start_of(load(path), {"LAKEPROOF_START": "on"})


@pytest.mark.filterwarnings("ignore:Parameter `include_sources`")  # of Dagster's own function for tests
def test_a_view_with_a_condition_is_refreshed_when_a_table_changes(path: Path) -> None:
    """Once for each event; the schedule is for views that have drifted alone."""
    defs = build(load(path))
    assert "views_refresh_schedule" in {schedule.name for schedule in defs.schedules or ()}
    assert "views_condition_sensor" in {sensor.name for sensor in defs.sensors or ()}
    table, view = dg.AssetKey(["current", "shop", "public", "a"]), dg.AssetKey(["views", "v"])
    with dg.DagsterInstance.ephemeral() as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization(table))
        instance.report_runless_asset_event(dg.AssetMaterialization(view))
        result = dg.evaluate_automation_conditions(defs, instance)
        result = dg.evaluate_automation_conditions(defs, instance, cursor=result.cursor)
        assert result.get_num_requested(view) == 0
        instance.report_runless_asset_event(dg.AssetMaterialization(table))
        result = dg.evaluate_automation_conditions(defs, instance, cursor=result.cursor)
        assert result.get_num_requested(view) == 1
        result = dg.evaluate_automation_conditions(defs, instance, cursor=result.cursor)
        assert result.get_num_requested(view) == 0


def _status(confirmed: int, lag_bytes: int, *, active: bool = True, gap: str | None = None) -> SlotStatus:
    state = SlotState(
        name="s",
        plugin="pgoutput",
        slot_type="logical",
        two_phase=False,
        temporary=False,
        database="d",
        active=active,
        active_pid=1 if active else None,
        restart_lsn=Lsn(confirmed),
        confirmed_flush_lsn=Lsn(confirmed),
        wal_status="reserved",
        invalidation_reason=None,
        safe_wal_size=None,
        retained_bytes=0,
        lag_bytes=lag_bytes,
    )
    problem = None if gap is None else Problem("slot s", gap, "recover", transient=False)
    return SlotStatus(True, state, None, problem)


def test_a_quiet_table_has_an_event_only_while_its_drain_keeps_up() -> None:
    """Three in its window; none of a drain that stands still, is gone, or can't be asked."""
    throttle = Throttle[TableName, int](60, int.__add__, windows_s={A: 300.0, B: 0.0})
    throttle.beat([A, B], 0)
    keeps_up = KeepsUp()

    def unreachable() -> SlotStatus:
        raise TransientError("server", "no answer", "wait")

    assert [throttle.quiet(now) for now in (99, 100, 129, 130)] == [[], [A], [], [A]]
    throttle.beat([A], 250)
    assert [throttle.quiet(now) for now in (349, 350)] == [[], [A]]
    throttle.add({A: 1})
    assert throttle.quiet(380) == []
    assert keeps_up.through(unreachable) is None
    assert keeps_up.through(lambda: _status(5, 1 << 30)) is None
    assert keeps_up.through(lambda: _status(5, 1 << 30)) is None
    assert keeps_up.through(lambda: _status(5, 0, active=False)) is None
    assert keeps_up.through(lambda: _status(5, 0, gap="lost")) is None
    assert keeps_up.through(lambda: _status(6, 1 << 30)) == Lsn(6)
    assert keeps_up.through(lambda: _status(6, 0)) == Lsn(6)
