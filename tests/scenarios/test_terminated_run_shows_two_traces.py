"""A drain that a person terminated ended in red, with two stack traces and no word of what is durable."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

from assets.support.engine_call import run_engine
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.load import load
from lakeproof.errors import LakeError
from lakeproof.events import Stop
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.storage.source_lake import SourceLake
from resources import Settings
from tests.support.ingest.fix_drain import wait_until
from tests.support.servers.fix_postgres import Database
from tests.support.shell.launched import dagster
from tests.support.shell.sample import password_of, write_source

Kind = dg.DagsterEventType


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A signal arrives in the main thread as Dagster's own does in the process of a run."""

    def interrupt(_signal: int, _frame: object) -> None:
        raise dg.DagsterExecutionInterruptedError

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


def _work(stop: Stop) -> None:
    os.kill(os.getpid(), signal.SIGUSR1)
    assert stop.wait(90)


def _run(instance: dg.DagsterInstance, achieved: Callable[[], str] | None, *, is_terminated: bool, steps: int) -> str:
    """Run a job whose first step is interrupted; return its id."""

    @dg.op
    def first() -> None:
        context = dg.OpExecutionContext.get()
        if is_terminated:
            context.instance.report_run_canceling(context.run)
        run_engine(_work, achieved=achieved)

    @dg.op
    def second() -> None:
        raise AssertionError("the next step began")

    @dg.job
    def job() -> None:
        first()
        if steps == 2:
            second()

    if steps == 1:
        return job.execute_in_process(instance=instance, raise_on_error=False).run_id
    with pytest.raises(dg.DagsterExecutionInterruptedError):
        job.execute_in_process(instance=instance)
    (record,) = instance.get_run_records()
    return record.dagster_run.run_id


def _shown(instance: dg.DagsterInstance, run_id: str) -> list[str]:
    """Return the lines of a run's log from the one that says that it was stopped."""
    lines = [entry.user_message or entry.message for entry in instance.all_logs(run_id)]
    return lines[next(number for number, line in enumerate(lines) if line.startswith("stopped as asked")) :]


def _traces(instance: dg.DagsterInstance, run_id: str) -> dict[str, str]:
    """Return the errors that a run's failed step and its end have."""
    errors = {}
    for entry in instance.all_logs(run_id):
        event = entry.dagster_event
        if event is not None and event.event_type is Kind.STEP_FAILURE and event.step_failure_data.error is not None:
            data = event.step_failure_data.user_failure_data
            errors["step"] = "" if data is None else str(data.description)
        if event is not None and event.event_type is Kind.RUN_CANCELED and event.event_specific_data is not None:
            error = event.job_canceled_data.error
            errors["run"] = "" if error is None else error.message
    return errors


@pytest.mark.usefixtures("interruptible")
def test_a_run_of_one_step_ends_with_a_sentence() -> None:
    """A line of the log, then the step's failure with the same words, then a canceled run without an error."""
    with dg.DagsterInstance.ephemeral() as instance:
        run_id = _run(instance, lambda: "durable up to 0/5", is_terminated=True, steps=1)
        record = instance.get_run_by_id(run_id)
        assert record is not None
        assert record.status is dg.DagsterRunStatus.CANCELED
        assert _shown(instance, run_id)[0] == "stopped as asked; durable up to 0/5"
        assert _traces(instance, run_id) == {"step": "stopped as asked; durable up to 0/5", "run": ""}


@pytest.mark.usefixtures("interruptible")
def test_of_several_steps_the_next_one_does_not_begin() -> None:
    """There the interruption comes through, after its line."""
    with dg.DagsterInstance.ephemeral() as instance:
        run_id = _run(instance, lambda: "durable up to 0/5", is_terminated=True, steps=2)
        assert _shown(instance, run_id)[0] == "stopped as asked; durable up to 0/5"


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("is_terminated", [False, True])
def test_other_interruptions_are_dagsters(is_terminated: bool) -> None:
    """A host that goes down has canceled nothing, and who has nothing to say of what was achieved ends as before."""
    with dg.DagsterInstance.ephemeral() as instance:
        achieved = None if is_terminated else _unreadable
        run_id = _run(instance, achieved, is_terminated=is_terminated, steps=1)
        record = instance.get_run_by_id(run_id)
        assert record is not None
        ended = dg.DagsterRunStatus.CANCELED if is_terminated else dg.DagsterRunStatus.FAILURE
        assert record.status is ended
        text = _shown(instance, run_id)[0]
        assert ("can't be read" in text) is not is_terminated


def _unreadable() -> str:
    raise LakeError("landing", "it is damaged", "restore it")


_REST = """\
    tables: [public.orders]
    compaction: {mode: scheduled}
"""


@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.full
def test_a_terminated_drain_says_up_to_where_it_is_durable(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The position is that of the landing's end, and the run is canceled."""
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE orders")
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    path = write_source(tmp_path, database, _REST)
    settings = Settings(config_path=str(path))
    assert settings.durable_through("shop") == "nothing has landed yet"
    assert settings.compacted_through(["shop"]) == "shop has no cut yet"
    bootstrap(load(path), "shop")
    lake = SourceLake.open(load(path).location, "shop")
    head = _end(lake)
    with dagster(tmp_path / "dagster", path) as running:
        options = {"drain_shop": {"until": "max_seconds", "max_seconds": 3600}}
        run_id = running.start("shop_drain", ops=options)
        database.execute("INSERT INTO orders VALUES (1)")
        wait_until(lambda: _end(lake) > head, timeout_s=120)
        assert running.terminate(run_id) == "TerminateRunSuccess"
        assert running.ended(run_id).status is dg.DagsterRunStatus.CANCELED
        text = f"stopped as asked; durable up to {_end(lake)}"
        assert _shown(running.instance, run_id)[0] == text
        assert _traces(running.instance, run_id) == {"step": text, "run": ""}


def _end(lake: SourceLake) -> Lsn:
    chain = Chain.open_newest(lake)
    assert chain is not None
    return chain.end
