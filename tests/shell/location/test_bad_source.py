"""A healthy source beside faulty ones: what their sensors, schedules and jobs do, through the real definitions."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.refresh import refresh
from lakeproof.config.load import load
from lakeproof.state.slot import TIMEOUT_S
from orchestration.build import build
from resources import Compute, Settings
from tests.support.servers.fix_postgres import Database, new_database
from tests.support.shell.sample import password_of
from tests.support.shell.shared_spark import SharedSpark

pytestmark = pytest.mark.postgres

# Of one database: `lost` has lost its slot, `damaged` its newest manifest. The servers of `dead` and `mute` don't answer.
_BAD = ("dead", "lost", "mute", "damaged")
_SOURCE = """\
  {name}:
    dsn: {dsn}
    password: {{env: LP_SHELL_PASSWORD}}
    publication: pub
    slot: {slot}
    tables: [public.orders]
    compaction: {{mode: scheduled}}
"""
_VIEW = "  {name}:\n    sql: total.sql\n    reads: {{orders: {name}/public.orders}}\n"


class Place:
    """The assembled location and an instance."""

    def __init__(self, path: Path, instance: dg.DagsterInstance, spark: Compute, mute: socket.socket) -> None:
        self.defs = build(load(path))
        self._sensors = {each.name: each for each in self.defs.sensors or []}
        self._schedules = {s.name: s for s in self.defs.schedules or [] if isinstance(s, dg.ScheduleDefinition)}
        self.instance = instance
        self.settings = Settings(config_path=str(path))
        self._spark = spark
        self._mute = mute

    def asked(self) -> int:
        """Return how many connections were made to `mute` since the last look."""
        count = 0
        with suppress(BlockingIOError):
            while True:
                self._mute.accept()[0].close()
                count += 1
        return count

    def sensor(self, source: str) -> dg.SensorResult:
        """Run a tick of the source's slot drain sensor."""
        with dg.build_sensor_context(instance=self.instance, resources={"settings": self.settings}) as context:
            actual = self._sensors[f"{source}_slot_drain_sensor"](context)
        assert isinstance(actual, dg.SensorResult)
        return actual

    def schedule(self, job: str) -> dg.RunRequest | dg.SkipReason:
        """Run a tick of the job's schedule."""
        with dg.build_schedule_context(instance=self.instance, resources={"settings": self.settings}) as context:
            actual = self._schedules[f"{job}_schedule"](context)
        assert isinstance(actual, dg.RunRequest | dg.SkipReason)
        return actual

    def run(self, job: str) -> dg.ExecuteInProcessResult:
        """Run to the end, with whatever status."""
        definition = self.defs.resolve_job_def(job)
        resources = {"compute": self._spark} if "compute" in definition.required_resource_keys else None
        return definition.execute_in_process(instance=self.instance, resources=resources, raise_on_error=False)


@pytest.fixture(scope="module")
def place(postgres: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """All have been bootstrapped but those whose server was never there; then things went wrong."""
    folder = tmp_path_factory.mktemp("bad")
    with new_database(postgres) as database, socket.create_server(("127.0.0.1", 0)) as mute:
        database.execute(
            "CREATE TABLE orders (id int PRIMARY KEY, amount int)",
            "INSERT INTO orders SELECT n, n FROM generate_series(1, 10) AS n",
            "CREATE PUBLICATION pub FOR TABLE orders",
        )
        path = _write(folder, database, mute.getsockname()[1])
        with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.local_temp(str(folder)) as instance:
            patch.setenv("LP_SHELL_PASSWORD", password_of(database))
            for source in ("well", "lost", "damaged"):
                bootstrap(load(path), source)
            database.drop_slot(f"{database.name}_lost")
            (head,) = (folder / "lake" / "damaged" / "landing").rglob("manifests/*.json")
            head.write_bytes(head.read_bytes()[:-20])
            mute.setblocking(False)
            yield Place(path, instance, SharedSpark(config_path=str(path)), mute)


def _write(folder: Path, database: Database, mute: int) -> Path:
    parts = conninfo_to_dict(database.dsn)
    del parts["password"]
    elsewhere = {"dead": 1, "mute": mute}
    text = "lake: lake\nsources:\n"
    for name in (*_BAD, "well"):
        dsn = make_conninfo("", **(parts | {"host": "127.0.0.1", "port": elsewhere.get(name, parts["port"])}))
        text += _SOURCE.format(name=name, dsn=dsn, slot=f"{database.name}_{name}")
    text += "views:\n" + "".join(_VIEW.format(name=name) for name in (*_BAD, "well"))
    (folder / "total.sql").write_text("SELECT count(*) AS n, sum(amount) AS amount FROM orders\n", encoding="utf-8")
    path = folder / "lakeproof.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("dead", "the slot can't be read"),
        ("mute", f"no answer for {TIMEOUT_S:g} s"),
        ("lost", "it does not exist; the landing ends at"),
        ("damaged", "the slot can't be read"),
    ],
)
def test_a_sensor_starts_nothing_that_could_only_fail(place: Place, source: str, says: str) -> None:
    """The sensor gives its reason in less time than Dagster allows a tick (60 s), while others wait for it."""
    begun = time.monotonic()
    actual = place.sensor(source)
    assert not actual.run_requests
    assert isinstance(actual.skip_reason, dg.SkipReason)
    assert says in (actual.skip_reason.skip_message or "")
    assert time.monotonic() - begun < 30


def test_the_sensor_of_the_source_that_is_well_starts_its_drain(place: Place) -> None:
    """The drain takes what is there, beside sources that can't be asked; the check of its slot passes."""
    (request,) = place.sensor("well").run_requests or []
    assert request.job_name == "well_drain"
    assert place.run("well_drain").success
    result = place.run("well_slot")
    passed = {check.check_name: check.passed for check in result.get_asset_check_evaluations()}
    assert passed == {"slot_health": True, "lake_is_whole": True}


@pytest.mark.spark
@pytest.mark.full
def test_the_source_that_is_well_goes_all_the_way(place: Place, spark: SparkSession) -> None:
    """The healthy source's compaction runs, and the view that reads only it; the other sources' views are held."""
    assert place.run("well_compaction").success
    begun = time.monotonic()
    actual = place.schedule("views_refresh")
    assert isinstance(actual, dg.RunRequest), actual
    assert time.monotonic() - begun < TIMEOUT_S
    result = place.run("views_refresh")
    created = {
        event.asset_key.to_user_string() for event in result.get_asset_materialization_events() if event.asset_key
    }
    assert created == {"views/well"}
    # The command does the same for all of them, also past a cut that can't be read.
    cuts = Path(place.settings.config().lake) / "damaged" / "cycles" / "cuts"
    cuts.mkdir(parents=True)
    (cuts / "000000000001.json").write_bytes(b"{")
    found_by_view = {created.view: created.stands_still for created in refresh(place.settings.config(), None, spark)}
    assert found_by_view["well"] is None
    assert all(found_by_view[name] for name in _BAD)
    assert "damaged" in (found_by_view["damaged"] or "")


@pytest.mark.parametrize(
    ("source", "reason"),
    [("dead", "onnection refused"), ("mute", "no answer"), ("lost", "it does not exist"), ("damaged", "damaged")],
)
def test_what_is_wrong_with_a_source_is_seen_in_its_own_runs(place: Place, source: str, reason: str) -> None:
    """A slot's check fails if the slot is gone; if nothing can be looked at, the run fails too, and both say why."""
    result = place.run(f"{source}_slot")
    checks = [
        (c.passed, c.severity, c.description or "")
        for c in result.get_asset_check_evaluations()
        if c.check_name == "slot_health"
    ]
    if source == "lost":
        ((passed, severity, description),) = checks
        assert (passed, severity) == (False, dg.AssetCheckSeverity.ERROR)
        assert reason in description
        assert "lakeproof recover" in description
    else:
        assert not result.success
        failure = next(event for event in result.all_events if event.is_step_failure)
        assert reason in str(failure.step_failure_data.user_failure_data)
        ((passed, severity, description),) = checks
        assert (passed, severity) == (False, dg.AssetCheckSeverity.ERROR)
        assert reason in description


def test_a_schedule_never_waits_for_a_server(place: Place) -> None:
    """The schedule decides by the lake alone."""
    place.asked()
    for source in ("dead", "mute"):
        for job in ("compaction", "slot"):
            actual = place.schedule(f"{source}_{job}")
            assert isinstance(actual, dg.SkipReason)
            assert "no landing yet" in str(actual.skip_message)
    assert place.asked() == 0
