"""A cycle reads each manifest of its range once, however often its plan, its tasks and its tables go over the range."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.landing.chain import Chain
from lakeproof.schema import Identity
from tests.support.lake.lake_steps import check, make_config, run_compact
from tests.support.lake.simulated_rows import schema
from tests.support.lake.simulated_source import SimulatedSource, SimulatedTable
from tests.support.workloads.lake_workload import SEED

TABLES = ("a", "b", "c")
SEGMENTS = 12


@pytest.fixture
def source(tmp_path: Path, no_spark: SparkOnDemand) -> SimulatedSource:
    """A lake of three tables, and a range of some segments that is not in it yet."""
    rng = random.Random(SEED)
    columns = {"id": "int8", "v": "text"}
    tables = [
        SimulatedTable(schema(n, columns, ("id",), Identity.DEFAULT, 900 + i)) for i, n in enumerate((*TABLES, "new"))
    ]
    source = SimulatedSource(tmp_path, tables)
    source.snapshot(TABLES)
    run_compact(no_spark, make_config(tmp_path))
    for number in range(SEGMENTS):
        for table in tables:
            source.insert(table, (number, "v"))
        source.commit(rng)
        source.flush()
        if number == 1:
            # It enters with a range of its own.
            source.snapshot(["new"])
    return source


_counting: list[Counter[str]] = []


def _hear(event: str, given: tuple[Any, ...]) -> None:
    if _counting and event == "open" and "/manifests/" in str(given[0]) and given[1] in {"r", "rb"}:
        _counting[-1][Path(given[0]).name] += 1


# The interpreter says which files are opened, and never stops.
sys.addaudithook(_hear)


@contextmanager
def _reads() -> Iterator[Counter[str]]:
    """How often each manifest was read from the lake's folder in the block."""
    _counting.append(Counter())
    try:
        yield _counting[-1]
    finally:
        _counting.clear()


def test_a_cycle_reads_each_manifest_once(source: SimulatedSource, no_spark: SparkOnDemand) -> None:
    """Beside the few that opening the chain checks. They were read 7 to 17 times, 125 in all."""
    config = make_config(source.folder)
    with _reads() as opening:
        Chain.open(source.lake, source.chain.incarnation)
    with _reads() as reads:
        (done,) = run_compact(no_spark, config)
    assert done.position == source.chain.end
    assert opening.total() > 0
    # The chain is opened once; the last look for another cycle finds the lake at the chain's end.
    within = reads - opening
    assert max(within.values()) <= 2
    assert sum(within.values()) <= SEGMENTS + 4
    check(config, source, [*TABLES, "new"])


def test_what_is_not_kept_is_read_again(source: SimulatedSource) -> None:
    """The number of manifests that are kept has a limit, and the result is the same."""
    chain = Chain.open(source.lake, source.chain.incarnation)
    expected = list(chain.manifests())
    ends = [m.end_lsn for m in expected]
    with _reads() as reads, chain.read_once(names_max=20):
        assert [list(chain.manifests()), list(chain.manifests())] == [expected, expected]
        few = [chain.number_after(end) for end in ends]
        assert few == [chain.number_after(end) for end in ends]
    assert (min(reads.values()), max(reads.values()) > 1) == (1, True)
    with chain.read_once():
        assert few == [chain.number_after(end) for end in ends]
