"""A run's own look at its record: when it looks, and what it makes of each word."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest

from assets.support.engine_call import CANCELING_S, LOOK_S, OwnRun, RunIsOverError, run_engine
from lakeproof.events import Stop

Status = dg.DagsterRunStatus


@dg.job
def nothing() -> None:
    """A job whose runs nobody executes."""


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance in memory."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


class _Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("status", [Status.STARTING, Status.STARTED])
def test_a_run_in_progress_works_on(instance: dg.DagsterInstance, status: Status) -> None:
    """STARTING too: the record may be read before the word that it has begun."""
    run = instance.create_run_for_job(nothing, status=status)
    OwnRun(instance, run.run_id).check()


@pytest.mark.parametrize("status", [Status.FAILURE, Status.SUCCESS])
def test_a_run_that_is_over_says_what_became_of_it(instance: dg.DagsterInstance, status: Status) -> None:
    """Its failure is not tried again: its successor has been started."""
    run = instance.create_run_for_job(nothing, status=status)
    with pytest.raises(RunIsOverError, match=f"this run became {status.value} in Dagster") as caught:
        OwnRun(instance, run.run_id).check()
    assert caught.value.allow_retries is False


def test_a_run_without_a_record_was_deleted(instance: dg.DagsterInstance) -> None:
    """Nobody could end it from the UI."""
    with pytest.raises(RunIsOverError, match="was deleted"):
        OwnRun(instance, "00000000-0000-0000-0000-000000000000").check()


def test_a_canceled_run_ends_as_dagster_ends_one(instance: dg.DagsterInstance) -> None:
    """So it stays canceled, and nobody gets an alert of a failure."""
    run = instance.create_run_for_job(nothing, status=Status.CANCELED)
    with pytest.raises(dg.DagsterExecutionInterruptedError):
        OwnRun(instance, run.run_id).check()


def test_a_request_to_terminate_has_time_to_arrive(instance: dg.DagsterInstance) -> None:
    """It comes as an exception; only if it does not come does the run end by itself."""
    run, clock = instance.create_run_for_job(nothing, status=Status.CANCELING), _Clock()
    own = OwnRun(instance, run.run_id, clock)
    own.check()
    clock.now += CANCELING_S - 1
    own.check()
    clock.now += LOOK_S
    with pytest.raises(dg.DagsterExecutionInterruptedError):
        own.check()


def test_it_looks_at_intervals_and_at_once_after_it_was_stopped(instance: dg.DagsterInstance) -> None:
    """A process that was stopped for a minute has missed its looks."""
    run, clock = instance.create_run_for_job(nothing, status=Status.STARTED), _Clock()
    own = OwnRun(instance, run.run_id, clock)
    own.check()
    instance.report_run_failed(run)
    clock.now += LOOK_S - 1
    own.check()
    clock.now += 60
    with pytest.raises(RunIsOverError):
        own.check()


def test_a_database_that_is_away_ends_no_run(instance: dg.DagsterInstance) -> None:
    """The source's changes go on to the lake while Dagster's own database restarts."""

    class Away(dg.DagsterInstance):
        def __init__(self) -> None:
            """Have no database."""

        def get_run_by_id(self, run_id: str) -> dg.DagsterRun | None:
            raise ConnectionError(run_id)

    run = instance.create_run_for_job(nothing, status=Status.STARTED)
    OwnRun(Away(), run.run_id).check()


def test_an_engine_call_of_a_run_that_is_over_does_not_begin(instance: dg.DagsterInstance) -> None:
    """A process that was stopped before it came to its work does none."""
    begun: list[Stop] = []

    @dg.op
    def late() -> None:
        context = dg.OpExecutionContext.get()
        context.instance.report_run_failed(context.run)
        run_engine(begun.append)

    @dg.job
    def job() -> None:
        late()

    result = job.execute_in_process(instance=instance, raise_on_error=False)
    assert not result.success
    assert not begun
    assert result.failure_data_for_node("late") is not None
