"""A run whose process was killed is told from one that works, and keeps nobody waiting.

What is decided from that, case by case, is in `test_schedules.py` and `test_recopying.py`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest

from orchestration import guard, runs
from orchestration.build import build
from orchestration.keeper import Phase
from resources import Settings
from tests.shell.sample import write_sample
from wal2delta.config.load import load

JOB = "shop_compaction"
# A run in a process of its own, as Dagster's launcher makes it; it says so by a file and works for ever.
_RUN = """\
import sys, time
from pathlib import Path
import dagster as dg
from resources import Settings

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
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2])
    try:
        deadline = time.monotonic() + 120
        while not at_work.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.wait()


def _tick(config: Path, instance: dg.DagsterInstance) -> str:
    """Why the compaction's schedule starts no run."""
    schedule = build(load(config)).resolve_schedule_def(f"{JOB}_schedule")
    with dg.build_schedule_context(instance, resources={"settings": Settings(config_path=str(config))}) as context:
        return str(schedule.evaluate_tick(context).skip_message)


@pytest.mark.slow
def test_a_killed_run_is_failed_and_a_living_one_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its age: both are older here than a run may be that has not come to its lock."""
    monkeypatch.setattr(guard, "UNLOCKED_S_MAX", 0.0)
    monkeypatch.setenv("W2D_SHELL_PASSWORD", "-")
    monkeypatch.setenv("W2D_SHELL_CRM", "host=127.0.0.1 port=1")
    monkeypatch.setenv("W2D_SHELL_UNLISTED", "host=127.0.0.1 port=1")
    config, storage = write_sample(tmp_path), tmp_path / "instance"
    storage.mkdir()
    settings = Settings(config_path=str(config))
    assert settings.is_working(JOB) is None
    retries = {"run_retries": {"enabled": True, "max_retries": 2, "retry_on_asset_or_op_failure": False}}
    with dg.DagsterInstance.local_temp(str(storage), overrides=retries) as instance:
        with _run(storage, config, tmp_path) as process:
            assert settings.is_working(JOB) is True
            assert "is started" in _tick(config, instance)
            process.kill()
            process.wait()
            assert settings.is_working(JOB) is False
            assert [run.phase for run in runs.recent_runs(instance, JOB)] == [Phase.STARTED]
        assert "bootstrap first" in _tick(config, instance)
        assert [run.phase for run in runs.recent_runs(instance, JOB)] == [Phase.FAILED]
        (record,) = instance.get_run_records()
        assert record.dagster_run.tags["dagster/will_retry"] == "false", "Dagster would launch it again"
