"""A run whose process was killed is distinguished from a working one, and keeps nobody waiting.

What is decided from that, case by case, is in `test_schedules.py` and `test_copy_policy.py`.
"""

from __future__ import annotations

import fcntl
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import dagster as dg
import pytest

from lakeproof.config.load import load
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from orchestration import runs
from orchestration.build import build
from orchestration.policies.run import UNLOCKED_S_MAX, Phase
from resources import Settings
from resources.settings import _locks, hold_run_lock
from tests.support.ingest.fix_drain import wait_until
from tests.support.shell.sample import write_sample

JOB = "shop_compaction"
# A run in its own process, as Dagster's launcher makes it; it says so by a file and works for ever.
_RUN = """\
import sys, time
from pathlib import Path
import dagster as dg
from resources import Settings
from resources.settings import _locks, hold_run_lock

@dg.op
def work(settings: Settings) -> None:
    Path(sys.argv[3]).touch()
    time.sleep(600)

@dg.job(name=sys.argv[4], executor_def=dg.in_process_executor)
def job() -> None:
    work()

with dg.DagsterInstance.local_temp(sys.argv[1]) as instance:
    job.execute_in_process(instance=instance, resources={"settings": Settings(config_path=sys.argv[2])})
"""


@contextmanager
def _run(instance: Path, config: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    at_work = folder / "at_work"
    command = [sys.executable, "-c", _RUN, str(instance), str(config), str(at_work), JOB]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[3])
    try:
        wait_until(lambda: at_work.exists() or process.poll() is not None, timeout_s=120)
        assert process.poll() is None
        yield process
    finally:
        process.kill()
        process.wait()


def _tick(config: Path, instance: dg.DagsterInstance) -> str:
    """The reason why the compaction's schedule starts no run."""
    schedule = build(load(config)).resolve_schedule_def(f"{JOB}_schedule")
    with dg.build_schedule_context(instance, resources={"settings": Settings(config_path=str(config))}) as context:
        return str(schedule.evaluate_tick(context).skip_message)


def _started_earlier(storage: Path, seconds: float) -> None:
    """Let the runs have started so much earlier, by Dagster's record of them."""
    with closing(sqlite3.connect(storage / "history" / "runs.db")) as database, database:
        database.execute("UPDATE runs SET start_time = start_time - ?", (seconds,))


@pytest.mark.slow
def test_a_killed_run_is_failed_and_a_living_one_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Age does not matter: both runs are older than a run that has not reached its lock may be."""
    monkeypatch.setenv("LP_SHELL_PASSWORD", "-")
    monkeypatch.setenv("LP_SHELL_CRM", "host=127.0.0.1 port=1")
    monkeypatch.setenv("LP_SHELL_UNLISTED", "host=127.0.0.1 port=1")
    config, storage = write_sample(tmp_path), tmp_path / "instance"
    storage.mkdir()
    settings = Settings(config_path=str(config))
    assert settings.has_live_process(JOB) is False
    retries = {"run_retries": {"enabled": True, "max_retries": 2, "retry_on_asset_or_op_failure": False}}
    with dg.DagsterInstance.local_temp(str(storage), overrides=retries) as instance:
        with _run(storage, config, tmp_path) as process:
            _started_earlier(storage, UNLOCKED_S_MAX + 1)
            assert settings.has_live_process(JOB) is True
            assert "is started" in _tick(config, instance)
            process.kill()
            process.wait()
            assert settings.has_live_process(JOB) is False
            assert [run.phase for run in runs.runs_of(instance, settings, JOB, 0.0).runs] == [Phase.STARTED]
        assert "bootstrap first" in _tick(config, instance)
        assert [run.phase for run in runs.runs_of(instance, settings, JOB, 0.0).runs] == [Phase.FAILED]
        (record,) = instance.get_run_records()
        assert record.dagster_run.tags["dagster/will_retry"] == "false", "Dagster would launch it again"


def test_a_lock_that_somebody_keeps_keeps_no_run(tmp_path: Path) -> None:
    """Anybody who may read the lake's folder can take it; the run goes on, and says so."""
    place = tmp_path / LakePaths.run_lock(JOB)
    place.parent.mkdir()
    with place.open("w") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        hold_run_lock(str(tmp_path), JOB, attempt_s=0.1)
        assert str(place) not in _locks
    hold_run_lock(str(tmp_path), JOB)
    assert open_store(str(tmp_path)).is_locked(LakePaths.run_lock(JOB)) is True
    _locks.pop(str(place)).release()
