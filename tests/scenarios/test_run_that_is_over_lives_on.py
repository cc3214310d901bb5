"""The process of a run that Dagster has called over, by whatever word, ends itself; and a slow one is not called dead.

A drain that was stopped for a while, or is slow on a busy machine, has no reader at its slot. If that alone made it dead, it
would drain on as a run that nobody can terminate, beside or in place of its successor.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest

from assets.current import compaction_units
from jobs.names import SENSOR_TAG
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.load import load
from lakeproof.landing.chain import Chain
from lakeproof.names import TableName
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake
from orchestration.outside_proofs import OutsideProofs
from orchestration.policies.run import UNLOCKED_S_MAX
from orchestration.sensors import compaction_sensor, slot_drain_sensor
from resources import Settings
from tests.support.ingest.fix_drain import fold, landed_rows, wait_until
from tests.support.servers.fix_postgres import Database
from tests.support.shell.launched import Dagster, dagster
from tests.support.shell.sample import password_of, write_source

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
JOB = "shop_drain"
ORDERS = TableName("public", "orders")
_REST = """\
    tables: [public.orders]
    compaction: {mode: scheduled}
"""
# What is asked of a process at its next look must be over by then, on a machine ten times too busy.
_ENDS_S = 120.0


@dataclass
class Running:
    """Dagster on one source, whose drains are processes of their own."""

    dagster: Dagster
    config: Path
    database: Database
    rows: int = 0

    def start(self, **tags: str) -> tuple[str, int]:
        """Start a drain as the sensor does; return its run and its process once it reads the slot."""
        options = {"drain_shop": {"until": "max_seconds", "max_seconds": 3600}}
        run = self.dagster.start(JOB, ops=options, tags={SENSOR_TAG: "true", "dagster/max_retries": "0", **tags})
        wait_until(self.is_read, timeout_s=_ENDS_S)
        return run, self.dagster.process_of(run)

    def is_read(self) -> bool:
        """True if somebody reads the slot."""
        return bool(self.asked("SELECT count(*) FROM pg_replication_slots WHERE active")[0][0])

    def asked(self, query: str) -> list[Any]:
        """The rows of a query."""
        with psycopg.connect(self.database.dsn, autocommit=True) as connection:
            return connection.execute(query.encode()).fetchall()

    def insert_and_wait(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Insert a row at the source, and wait until it has landed."""
        self.rows += 1
        self.database.execute("INSERT INTO orders SELECT count(*) + 1 FROM orders")

        def landed() -> bool:
            meanwhile()
            return len(landed_rows(self.chain())) == self.rows

        wait_until(landed, timeout_s=_ENDS_S)

    def chain(self) -> Chain:
        """The landing."""
        chain = Chain.open_newest(SourceLake.open(load(self.config).location, "shop"))
        assert chain is not None
        return chain

    def tick(self, later_s: float) -> dg.SensorResult:
        """A tick of the sensor, as if it were so much later."""
        settings = Settings(config_path=str(self.config))
        with dg.build_sensor_context(self.dagster.instance, resources={"settings": settings}) as context:
            config = load(self.config)
            source, proofs = config.source("shop"), OutsideProofs.of(config, config.source("shop"))
            actual = slot_drain_sensor(source, proofs, lambda: time.time() + later_s)(context)
        assert isinstance(actual, dg.SensorResult)
        return actual

    def status(self, run: str) -> dg.DagsterRunStatus | None:
        """The word of a run's record, None if there is no record."""
        record = self.dagster.instance.get_run_by_id(run)
        return None if record is None else record.status

    def cut_off(self) -> None:
        """End the connection of the slot's reader at the server."""
        self.asked("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        wait_until(lambda: not self.is_read())

    def assert_same(self) -> None:
        """All that has landed adds up to the source's rows."""
        assert fold(landed_rows(self.chain()))[ORDERS] == sorted(self.asked("SELECT id FROM orders"))


@pytest.fixture
def running(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A source with its first copy of no row, and Dagster's code server."""
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE orders")
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    path = write_source(tmp_path, database, _REST)
    bootstrap(load(path), "shop")
    with dagster(tmp_path / "dagster", path) as started:
        running = Running(started, path, database)
        try:
            yield running
        finally:
            for record in started.instance.get_run_records():
                if not record.dagster_run.is_finished:
                    os.kill(started.process_of(record.dagster_run.run_id), signal.SIGKILL)


def _is_gone(process: int) -> bool:
    """True if a process has ended; its parent, the code server, may not have collected it."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.full
def test_a_drain_that_is_stopped_for_50_seconds_goes_on_as_the_only_one(running: Running) -> None:
    """Stopped right after its run has begun, under the sensors as the daemon evaluates them; then it can be terminated."""
    instance = running.dagster.instance
    running.dagster.look_at_sensors()
    (run,) = [record.dagster_run.run_id for record in instance.get_run_records(dg.RunsFilter(job_name=JOB))]
    wait_until(lambda: running.status(run) is dg.DagsterRunStatus.STARTED, timeout_s=_ENDS_S)
    process = running.dagster.process_of(run)
    os.kill(process, signal.SIGSTOP)
    for _ in range(10):
        time.sleep(5)
        running.dagster.look_at_sensors()
        running.dagster.monitor()
    os.kill(process, signal.SIGCONT)
    running.insert_and_wait()
    running.dagster.look_at_sensors()
    (record,) = instance.get_run_records(dg.RunsFilter(job_name=JOB))
    assert record.dagster_run.status is dg.DagsterRunStatus.STARTED
    # The sensor is not asked any more: it is stopped.
    assert running.dagster.terminate(run) == "TerminateRunSuccess"
    wait_until(lambda: _is_gone(process), timeout_s=_ENDS_S)
    assert running.status(run) is dg.DagsterRunStatus.CANCELED
    assert not running.is_read()
    running.assert_same()


@pytest.mark.full
def test_a_drain_that_lives_is_never_called_dead_because_nobody_reads_the_slot(running: Running) -> None:
    """Its lock says that it lives, even after most of an hour. Killed, it is dead at once."""
    run, process = running.start()
    os.kill(process, signal.SIGSTOP)
    running.cut_off()
    for later_s in (50, 200, 3000):
        tick = running.tick(later_s)
        assert not tick.run_requests
        assert "is at work" in str(tick.skip_reason)
    assert running.status(run) is dg.DagsterRunStatus.STARTED
    os.kill(process, signal.SIGCONT)
    running.insert_and_wait()
    os.kill(process, signal.SIGKILL)
    wait_until(lambda: not running.is_read())
    tick = running.tick(200)
    assert running.status(run) is dg.DagsterRunStatus.FAILURE
    assert len(tick.run_requests or ()) == 1
    running.assert_same()


@pytest.mark.full
def test_a_drain_that_was_called_dead_ends_itself_and_leaves_the_slot_to_its_successor(running: Running) -> None:
    """On a store where a lock is a lease with a time, a stopped process loses it: here somebody removes the lock's file."""
    run, process = running.start()
    running.insert_and_wait()
    os.kill(process, signal.SIGSTOP)
    running.cut_off()
    lock = Path(load(running.config).lake) / LakePaths.run_lock(JOB)
    lock.unlink()
    assert len(running.tick(UNLOCKED_S_MAX + 1).run_requests or ()) == 1
    assert running.status(run) is dg.DagsterRunStatus.FAILURE
    running.start()
    os.kill(process, signal.SIGCONT)
    wait_until(lambda: _is_gone(process), timeout_s=_ENDS_S)
    assert running.status(run) is dg.DagsterRunStatus.FAILURE
    # As it woke it may have taken the number of the successor's next manifest: the sensor then starts another one.
    running.insert_and_wait(running.dagster.look_at_sensors)
    in_progress = dg.RunsFilter(job_name=JOB, statuses=[dg.DagsterRunStatus.STARTED])
    (successor,) = [record.dagster_run.run_id for record in running.dagster.instance.get_run_records(in_progress)]
    assert running.dagster.terminate(successor) == "TerminateRunSuccess"
    assert running.dagster.ended(successor).status is dg.DagsterRunStatus.CANCELED
    running.assert_same()


def _fail(running: Running, run: str) -> None:
    record = running.dagster.instance.get_run_by_id(run)
    assert record is not None
    running.dagster.instance.report_run_failed(record, "somebody says so")


def _cancel(running: Running, run: str) -> None:
    record = running.dagster.instance.get_run_by_id(run)
    assert record is not None
    running.dagster.instance.report_run_canceled(record, "somebody says so")


def _cancel_unheard(running: Running, run: str) -> None:
    record = running.dagster.instance.get_run_by_id(run)
    assert record is not None
    running.dagster.instance.report_run_canceling(record, "its process hears nothing of it")


def _delete(running: Running, run: str) -> None:
    running.dagster.instance.delete_run(run)


def _monitor(running: Running, _run: str) -> None:
    # Its time is over: Dagster asks the process, which does not answer, and calls the run failed.
    running.dagster.monitor()


# The word's name, who speaks it, whether the process is stopped meanwhile, and the word in the end.
_WORDS: tuple[tuple[str, Callable[[Running, str], None], bool, dg.DagsterRunStatus | None], ...] = (
    ("failed", _fail, True, dg.DagsterRunStatus.FAILURE),
    ("failed while it works", _fail, False, dg.DagsterRunStatus.FAILURE),
    ("canceled", _cancel, True, dg.DagsterRunStatus.CANCELED),
    ("canceled, unheard", _cancel_unheard, False, dg.DagsterRunStatus.CANCELED),
    ("deleted", _delete, False, None),
    ("monitored", _monitor, True, dg.DagsterRunStatus.FAILURE),
)


@pytest.mark.full
def test_a_drain_whose_run_is_over_by_whatever_word_ends_itself(running: Running) -> None:
    """Stopped while the word is spoken, and at work: its process ends, and what it has read is durable and confirmed."""
    for name, end, is_stopped, word in _WORDS:
        run, process = running.start(**{"dagster/max_runtime": "1"})
        running.insert_and_wait()
        if is_stopped:
            os.kill(process, signal.SIGSTOP)
        end(running, run)
        if is_stopped:
            os.kill(process, signal.SIGCONT)
        wait_until(partial(_is_gone, process), timeout_s=_ENDS_S)
        assert running.status(run) is word, name
        wait_until(lambda: not running.is_read())
    running.assert_same()


@pytest.mark.full
@pytest.mark.spark
def test_a_compaction_that_is_stopped_is_not_called_dead_and_one_that_is_over_ends_itself(running: Running) -> None:
    """By the same rules; the lease is free afterwards, and what had landed is compacted by the next one."""
    running.dagster.launch("shop_drain")
    options = {"compact_shop": {"until": "max_seconds", "max_seconds": 3600}}
    settings = Settings(config_path=str(running.config))
    run = running.dagster.start("shop_compaction", ops=options, tags={SENSOR_TAG: "true"})
    wait_until(lambda: bool(settings.follow_state("shop").is_followed), timeout_s=2 * _ENDS_S)
    process = running.dagster.process_of(run)
    os.kill(process, signal.SIGSTOP)
    sensor = compaction_sensor(compaction_units(load(running.config))[0], lambda: time.time() + 300)
    with dg.build_sensor_context(running.dagster.instance, resources={"settings": settings}) as context:
        tick = sensor(context)
    assert isinstance(tick, dg.SensorResult)
    assert "is at work" in str(tick.skip_reason)
    _fail(running, run)
    os.kill(process, signal.SIGCONT)
    wait_until(partial(_is_gone, process), timeout_s=2 * _ENDS_S)
    assert running.status(run) is dg.DagsterRunStatus.FAILURE
    assert settings.follow_state("shop").is_followed is False
    assert settings.lake_status("shop").sources["shop"].lease_taken is False
