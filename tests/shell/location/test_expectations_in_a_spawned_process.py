"""Great Expectations work in the processes that Dagster starts for its runs, whose `__main__` has no file."""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

import pytest

from lakeproof.expectations.configured import Expectation
from lakeproof.expectations.evaluate import evaluate
from lakeproof.lake.spark.session import build_session
from tests.support.spark.fix_lake import SPARK

# A run that Dagster starts evaluates one in `test_proofs_stay.py`, too.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.full]


def _in_a_worker(answers: Any) -> None:
    bare = not hasattr(sys.modules["__main__"], "__file__")
    session = build_session(SPARK, "lakeproof tests: a worker")
    try:
        frame = session.createDataFrame([(1,), (2,), (2,)], "id int")
        unique = Expectation("unique", "expect_column_values_to_be_unique", {"column": "id"}, "error")
        (result,) = evaluate(frame, "t", [unique])
        answers.put((bare, result.passed, result.counts["unexpected_count"]))
    finally:
        session.stop()


def test_an_expectation_is_evaluated_in_a_spawned_process() -> None:
    """The expectation finds the fault, instead of ending the process with status 0."""
    main = sys.modules["__main__"]
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    with pytest.MonkeyPatch.context() as patch:
        # As `python -m dagster` has it: multiprocessing then runs no main module in the child.
        patch.setattr(main, "__spec__", None)  # inside: a spawned process would import pytest's main module
        patch.delattr(main, "__file__", raising=False)
        worker = spawn.Process(target=_in_a_worker, args=(answers,))
        worker.start()
    worker.join(300)
    assert worker.exitcode == 0
    assert answers.get(timeout=10) == (True, False, 2)
