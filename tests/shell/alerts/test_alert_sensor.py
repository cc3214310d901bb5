"""The alert sensor against servers that receive what it sends: what Dagster knows of comes to people, once, and its end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakeproof.config.load import load
from lakeproof.errors import ConfigError
from orchestration.alerts import ALERTS, Watched, alert_sensor, watched_by_alerts
from orchestration.build import build
from resources import Settings
from tests.support.shell.receivers import Mails, Posts, http_receiver, smtp_receiver

_HEAD = """\
lake: lake
sources:
  shop: {dsn: "host=127.0.0.1 port=1 dbname=shop user=u", tables: [public.orders]}
"""
_ALERTS = """\
alerts:
  slack: {{url: {{env: LP_SLACK}}}}
  webhook: {{url: {{env: LP_HOOK}}, authorization: {{file: token}}}}
  pagerduty: {{routing_key: {{env: LP_KEY}}, url: "http://127.0.0.1:{port}/pager"}}
  email: {{host: 127.0.0.1, port: {smtp}, tls: none, sender: lake@example.org, to: [a@example.org, b@example.org]}}
  ui: https://dagster.example.org/
"""
_SLOT = dg.AssetKey(["slots", "shop"])


@dataclass
class Ticks:
    """The sensor, one tick after another, with a clock that the test sets."""

    path: Path
    instance: dg.DagsterInstance
    posts: Posts
    mails: Mails
    now: float = 0.0
    cursor: str | None = None

    def tick(self, after_s: float = 30) -> None:
        """Let some time pass and look."""
        self.now += after_s
        config = load(self.path)
        defs = build(config)
        assets = [a for a in defs.assets or () if isinstance(a, dg.AssetsDefinition)]
        names = watched_by_alerts(config, [job.name for job in defs.resolve_all_job_defs()], assets)
        (sensor,) = alert_sensor(config, names, lambda: self.now)
        resources = {"settings": Settings(config_path=str(self.path))}
        with dg.build_sensor_context(self.instance, self.cursor, resources=resources, definitions=defs) as context:
            result = sensor(context)
        assert isinstance(result, dg.SensorResult)
        self.cursor = result.cursor

    def check(self, *, passed: bool) -> None:
        """Report the slot's check, as its own sensor does."""
        evaluation = dg.AssetCheckEvaluation(
            asset_key=_SLOT, check_name="slot_health", passed=passed, metadata={}, description="the slot is gone & lost"
        )
        self.instance.report_runless_asset_event(evaluation)


@pytest.fixture
def ticks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ticks]:
    """The sensor of a location, with a server for each way."""
    with http_receiver() as posts, smtp_receiver() as mails, dg.DagsterInstance.ephemeral() as instance:
        path = tmp_path / "lakeproof.yaml"
        path.write_text(_HEAD + _ALERTS.format(port=posts.port, smtp=mails.port), encoding="utf-8")
        (tmp_path / "token").write_text("Bearer hush\n", encoding="utf-8")
        for variable, value in {"LP_SLACK": "slack", "LP_HOOK": "hook"}.items():
            monkeypatch.setenv(variable, f"http://127.0.0.1:{posts.port}/{value}")
        monkeypatch.setenv("LP_KEY", "key of the integration")
        yield Ticks(path, instance, posts, mails)


def _event(document: Mapping[str, Any]) -> tuple[str, str]:
    return document["event_action"], document["dedup_key"]


def test_a_failed_check_is_reported_by_every_way_once_and_its_end_too(ticks: Ticks) -> None:
    """Each way in its own form, with a link to the page."""
    ticks.tick()
    assert ticks.posts.received == []
    ticks.check(passed=False)
    ticks.tick()
    ticks.tick()
    (slack,) = ticks.posts.documents("/slack")
    expected = "ERROR: slots/shop: slot_health | the slot is gone &amp; lost"
    assert slack["text"] == f"{expected} | https://dagster.example.org/assets/slots/shop?view=checks"
    ((_, headers, hook),) = [post for post in ticks.posts.received if post[0] == "/hook"]
    assert headers["Authorization"] == "Bearer hush"
    assert [(line["event"], line["kind"], line["severity"]) for line in hook["messages"]] == [
        ("problem", "slot", "error")
    ]
    (pager,) = ticks.posts.documents("/pager")
    assert _event(pager) == ("trigger", "lakeproof/check/slots/shop/slot_health")
    assert pager["routing_key"] == "key of the integration"
    assert (pager["payload"]["severity"], pager["payload"]["class"]) == ("error", "slot")
    (mail,) = ticks.mails.received
    assert "To: a@example.org, b@example.org" in mail
    assert "Subject: ERROR: slots/shop: slot_health" in mail

    ticks.check(passed=True)
    for _ in range(4):
        ticks.tick()
    assert _event(ticks.posts.documents("/pager")[-1]) == ("resolve", "lakeproof/check/slots/shop/slot_health")
    assert ticks.posts.documents("/slack")[-1]["text"].startswith("OK: slots/shop: slot_health is over")
    assert [len(ticks.posts.documents(path)) for path in ("/slack", "/hook", "/pager")] == [2, 2, 2]
    assert len(ticks.mails.received) == 2


def test_a_way_that_fails_holds_up_no_other_and_is_tried_again(ticks: Ticks, monkeypatch: pytest.MonkeyPatch) -> None:
    """No redirect is followed, a missing secret is one way's failure, and no secret is in what the sensor keeps."""
    ticks.posts.status = 302
    ticks.check(passed=False)
    ticks.tick()
    assert ticks.posts.received == []
    assert len(ticks.mails.received) == 1
    assert not [word for word in ("hush", "127.0.0.1", "key of") if word in (ticks.cursor or "")]
    ticks.posts.status = 202
    monkeypatch.delenv("LP_SLACK")
    ticks.tick()
    assert sorted(path for path, _, _ in ticks.posts.received) == ["/hook", "/pager"]
    assert len(ticks.mails.received) == 1


def test_a_failed_run_is_reported_with_the_engines_words_until_the_job_works_again(ticks: Ticks) -> None:
    """The key of the problem is the job: it is one problem, however often it fails."""
    ticks.tick()
    job = build(load(ticks.path)).resolve_job_def("shop_slot")
    for _ in range(2):
        assert not job.execute_in_process(instance=ticks.instance, raise_on_error=False).success
        ticks.tick()
    lines = [line for d in ticks.posts.documents("/hook") for line in d["messages"] if line["kind"] == "run"]
    assert [(line["event"], line["title"]) for line in lines] == [("problem", "shop_slot failed")]
    assert "Connection refused" in lines[0]["text"]
    ticks.instance.create_run_for_job(job, status=dg.DagsterRunStatus.SUCCESS)
    for _ in range(4):
        ticks.tick()
    lines = [line for d in ticks.posts.documents("/hook") for line in d["messages"] if line["kind"] == "run"]
    assert [line["event"] for line in lines] == ["problem", "over"]


def test_a_run_that_failed_amid_hundreds_is_reported(ticks: Ticks) -> None:
    """A daemon that was away for a night comes back to more runs than one page of them."""
    ticks.now = time.time() - 60
    ticks.tick()
    jobs = [build(load(ticks.path)).resolve_job_def(name) for name in ("shop_slot", "shop_maintenance")]
    for _ in range(250):
        ticks.instance.create_run_for_job(jobs[0], status=dg.DagsterRunStatus.SUCCESS)
    ticks.instance.create_run_for_job(jobs[1], status=dg.DagsterRunStatus.FAILURE)
    ticks.tick(90)
    ticks.tick()
    lines = [line["title"] for d in ticks.posts.documents("/hook") for line in d["messages"] if line["kind"] == "run"]
    assert lines == ["shop_maintenance failed"]


def test_a_problem_among_too_many_is_not_over(ticks: Ticks) -> None:
    """A cursor has room for some hundred problems; one that has no room in it lasts all the same."""
    checks = [dg.AssetCheckKey(_SLOT, f"check_{n:03}") for n in range(501)]
    config = load(ticks.path)
    (sensor,) = alert_sensor(config, Watched(frozenset(), tuple(checks), (), ()), lambda: ticks.now)

    def fail(check: dg.AssetCheckKey) -> None:
        ticks.instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(asset_key=_SLOT, check_name=check.name, passed=False, metadata={})
        )

    fail(checks[-1])
    for now in range(0, 300, 30):
        ticks.now = now
        if now == 30:
            for check in checks[:-1]:
                fail(check)
        resources = {"settings": Settings(config_path=str(ticks.path))}
        with dg.build_sensor_context(ticks.instance, ticks.cursor, resources=resources) as context:
            result = sensor(context)
        assert isinstance(result, dg.SensorResult)
        ticks.cursor = result.cursor
    lines = [line for d in ticks.posts.documents("/hook") for line in d["messages"]]
    assert lines[0]["key"].endswith("check_500")
    assert {line["event"] for line in lines} == {"problem"}


def test_without_a_way_there_is_no_sensor_and_a_mistake_is_named(tmp_path: Path) -> None:
    """A secret that stands in the file is one."""
    path = tmp_path / "lakeproof.yaml"
    path.write_text(_HEAD, encoding="utf-8")
    assert ALERTS not in {sensor.name for sensor in build(load(path)).sensors or ()}
    path.write_text(_HEAD + "alerts:\n  slack: {url: 'https://hooks.example.org/secret'}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"alerts\.slack\.url: must be \{env: NAME\} or \{file: PATH\}"):
        load(path)
    path.write_text(_HEAD + "alerts:\n  email: {host: h, sender: a@b.c, to: [], tsl: none}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="tsl") as error:
        load(path)
    assert "alerts.email.to" in str(error.value)
