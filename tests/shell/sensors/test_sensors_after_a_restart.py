"""A sensor whose daemon was restarted, or whose cursor was lost, starts no run twice and forgets none.

What a sensor decides, case by case, belongs to `test_lasting_policy.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest

from jobs.names import SENSOR_TAG
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.load import load
from orchestration.build import build
from resources import Settings
from tests.support.servers.fix_postgres import Database
from tests.support.shell.sample import password_of, write_source

pytestmark = pytest.mark.postgres
_CURSORS = ("kept", "lost", "of another version")


@pytest.fixture
def path(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration of a source with its first copy."""
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE orders")
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    result = write_source(tmp_path, database, "    tables: [public.orders]\n")
    bootstrap(load(result), "shop")
    return result


@pytest.mark.parametrize("name", ["shop_slot_drain_sensor", "shop_compaction_sensor"])
def test_a_run_that_was_asked_for_is_asked_for_once(path: Path, name: str) -> None:
    """While it works no cursor asks for a second one; when it has ended, each asks for the next."""
    defs, settings = build(load(path)), Settings(config_path=str(path))
    sensor, cursor = defs.resolve_sensor_def(name), None

    def tick(instance: dg.DagsterInstance, cursor: str | None) -> dg.SensorExecutionData:
        with dg.build_sensor_context(
            instance=instance, cursor=cursor, definitions=defs, resources={"settings": settings}
        ) as context:
            return sensor.evaluate_tick(context)

    with dg.DagsterInstance.ephemeral() as instance:
        first = tick(instance, cursor)
        assert first.run_requests is not None
        (request,) = first.run_requests
        cursors = dict(zip(_CURSORS, (first.cursor, None, "{"), strict=True))
        assert json.loads(first.cursor or "")["state"]
        job = defs.resolve_job_def(name.replace("_slot", "").removesuffix("_sensor"))
        run = instance.create_run_for_job(job, tags=request.tags, status=dg.DagsterRunStatus.STARTING)
        for kind, each in cursors.items():
            assert not tick(instance, each).run_requests, kind
        assert run.tags[SENSOR_TAG] == "true"
        instance.report_run_canceled(run)
        for kind, each in cursors.items():
            assert tick(instance, each).run_requests, kind
