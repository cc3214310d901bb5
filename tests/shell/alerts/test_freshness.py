"""Ages that are too old, events of quiet tables, and what starts by itself."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from assets.changes import KeepsUp
from assets.support.pace import Throttle
from lakeproof.config.load import load
from lakeproof.errors import ConfigError
from lakeproof.events import Event
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from orchestration.build import build, start_of

A, B = TableName("public", "a"), TableName("public", "b")
_YAML = """\
lake: lake
dagster: {start: stopped}
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


def test_a_quiet_table_has_three_events_in_its_window() -> None:
    """Three in its window."""
    throttle = Throttle[TableName, int](60, int.__add__, windows_s={A: 300.0, B: 0.0})
    throttle.beat([A, B], 0)
    assert [throttle.quiet(now) for now in (99, 100, 129, 130)] == [[], [A], [], [A]]
    throttle.beat([A], 250)
    assert [throttle.quiet(now) for now in (349, 350)] == [[], [A]]
    throttle.add({A: 1})
    assert throttle.quiet(380) == []


def test_a_drain_keeps_up_while_it_moves_or_no_commit_waits() -> None:
    """Its own events say so every 15 s: without its server the wait grows, and once it is gone none comes."""
    keeps_up, seen = KeepsUp(), []
    for now, durable, lag_s in [
        (0, 5, 90.0),
        (15, 5, 105.0),
        (30, 6, 90.0),
        (45, 6, 0.1),
        (60, 6, 70.0),
        (106, 6, 116.0),
    ]:
        fields = {"durable_lsn": str(Lsn(durable)), "lag_s": lag_s}
        keeps_up.hear(Event("drain.rates", "", fields), now)
        seen.append(keeps_up.through(now))
    assert seen == [None, None, Lsn(6), Lsn(6), Lsn(6), None]
    keeps_up.hear(Event("drain.flush", "", {}), 107)
    assert keeps_up.through(107) is None
