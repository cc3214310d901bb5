"""A cycle reads each manifest of its range once, however often its plan, its tasks and its tables go over the range."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakeproof.lake.cycle import apply_cycle
from lakeproof.lake.cycle import steps as cycle
from lakeproof.lake.cycle import table as cycle_table
from lakeproof.landing import chain as chains
from lakeproof.landing.chain import Chain
from lakeproof.schema import Identity
from lakeproof.storage.local import LocalStore
from tests.crashing_delta import StandIn
from tests.lake_steps import make_config, run_compact
from tests.lake_workload import SEED
from tests.simulated_rows import schema
from tests.simulated_source import SimulatedSource, SimulatedTable

TABLES = ("a", "b", "c")
SEGMENTS = 12


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedSource:
    """A lake of three tables, and a range of some segments that is not in it yet; commits are made by a stand-in."""
    rng = random.Random(SEED)
    columns = {"id": "int8", "v": "text"}
    tables = [SimulatedTable(schema(n, columns, ("id",), Identity.DEFAULT, 900 + i)) for i, n in enumerate(TABLES)]
    source, lake = SimulatedSource(tmp_path, tables), StandIn(rng, chance=0)
    monkeypatch.setattr(apply_cycle, "write_table", lake.write_table)  # inside: reads are counted, whatever Spark does
    monkeypatch.setattr(cycle, "sync_commits", lambda *_: None)  # inside: the same
    monkeypatch.setattr("lakeproof.commands.compact.at_work", lambda *_: nullcontext())  # inside: the same
    for name in ("refuse_too_large", "fit_table"):
        monkeypatch.setattr(cycle_table, name, lambda *_: None)  # inside: the same
    source.snapshot(TABLES)
    compacted(source, tmp_path)
    for number in range(SEGMENTS):
        for table in tables:
            source.insert(table, (number, "v"))
        source.commit(rng)
        source.flush()
        if number == 1:
            # It enters with a range of its own.
            source.snapshot(TABLES[:1])
    return source


def compacted(source: SimulatedSource, lake: Path, cycle_rows: int = 1_000) -> int:
    """Compact without Spark; return the number of cycles."""
    context = SimpleNamespace(_gateway=None, master="local[2]")
    spark: Any = SimpleNamespace(newSession=lambda: None, sparkContext=context)
    done = run_compact(spark, make_config(lake, cycle_rows=cycle_rows, engine="spark"))
    assert done[-1].position == source.chain.end
    return len(done)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each manifest was read from the store."""
    counted, get = Counter[str](), LocalStore.get

    def counting(store: LocalStore, key: str) -> bytes:
        if "/manifests/" in key:
            counted[key.rpartition("/")[2]] += 1
        return get(store, key)

    monkeypatch.setattr(LocalStore, "get", counting)  # inside: it counts
    return counted


def test_a_cycle_reads_each_manifest_once(source: SimulatedSource, reads: Counter[str], tmp_path: Path) -> None:
    """Beside the few that opening the chain checks. They were read 7 to 17 times, 125 in all."""
    Chain.open(source.lake, source.chain.incarnation)
    opening = Counter(reads)
    reads.clear()
    assert compacted(source, tmp_path) == 1
    # The chain is opened once; the last look for another cycle finds the lake at the chain's end.
    within = reads - opening
    assert max(within.values()) <= 2
    assert sum(within.values()) <= SEGMENTS + 4


def test_what_is_not_kept_is_read_again(
    source: SimulatedSource, reads: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of manifests that are kept has a limit, and the result is the same."""
    chain = Chain.open(source.lake, source.chain.incarnation)
    expected = list(chain.manifests())
    monkeypatch.setattr(chains, "KEPT_NAMES_MAX", 20)  # inside: 100,000 names take minutes to make
    reads.clear()
    with chain.read_once():
        assert [list(chain.manifests()), list(chain.manifests())] == [expected, expected]
        ends = [m.end_lsn for m in expected]
        assert [chain.number_after(end) for end in ends] == [chain.number_after(end) for end in ends]
    assert (min(reads.values()), max(reads.values()) > 1) == (1, True)
    with chain.read_once():
        kept = [chain.number_after(end) for end in ends]
    assert kept == [chain.number_after(end) for end in ends]
