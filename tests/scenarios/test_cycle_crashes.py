"""The cycle's protocol under hundreds of crashes: every cut names one state of the source, and nothing is applied twice.

In the first test everything of a compaction is real but Delta: its commits are kept in this process by a stand-in that
refuses what Delta's log would refuse, and writes the lines of that log which a cycle looks at. In the second Spark and
Delta are real too. A crash here is an exception that nobody may catch; processes are killed in `test_compaction_killed.py`,
a few, for each takes a JVM.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakeproof.config.location import LakeLocation
from lakeproof.errors import TransientError
from lakeproof.failpoints import watched
from lakeproof.lake.cycle import apply_cycle
from lakeproof.lake.cycle import steps as cycle
from lakeproof.lake.read.in_process import read_lake
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.store import newest_number, read_cut
from lakeproof.names import CycleNumber
from lakeproof.schema import Identity
from tests.crashing_delta import Crash, StandIn
from tests.lake_steps import check, make_config, run_compact
from tests.simulated_rows import canonical, schema
from tests.simulated_source import SOURCE, SimulatedSource, SimulatedTable

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
TABLES = ("a", "b", "late")
_STEPS = {"cycle.after_intent", "cycle.after_tables", "cycle.after_sync", "cycle.after_cut"}
_TAKING_BACK = {"cycle.before_taken_back", "cycle.after_taken_back"}
_COMMITS = {"apply.before_commit", "apply.after_commit"}
_WITH_COMMITS = {*_STEPS, "cycle.after_history", "cycle.after_current", *_COMMITS, *_TAKING_BACK}


def _transaction(rng: random.Random, source: SimulatedSource) -> None:
    for _ in range(rng.randrange(1, 6)):
        table = source.table(rng.choice(TABLES))
        key, old = rng.randrange(8), rng.choice(table.rows) if table.rows else None
        free = not table.has((key,))
        if rng.random() < 0.03:
            source.truncate(table)
        elif old is None or (free and rng.random() < 0.5):
            if free:
                source.insert(table, (key, f"v{rng.randrange(99)}"))
        elif rng.random() < 0.3:
            source.delete(table, old)
        else:
            source.update(table, old, (key if free else old[0], f"v{rng.randrange(99)}"))
    source.commit(rng)
    if rng.random() < 0.4:
        source.flush()


def _at(lake: StandIn, steps: Collection[str]) -> Callable[[str], None]:
    """Perhaps the end of the process, at any of these steps."""

    def passing(name: str) -> None:
        if name in steps:
            lake.step(name)

    return passing


def _check(source: SimulatedSource, lake: StandIn, cut: Cut) -> None:
    """Each table at the cut is what the source was there; history has each change once, in order."""
    state = source.state_at(cut.position)
    for table, position in cut.tables.items():
        actual = lake.current[table].versions[position.current_version][1]
        assert Counter(canonical(row) for row in actual.items()) == state[table], (
            f"{table} at cut {cut.number}, seed {SEED}"
        )
        events = lake.history[table].versions[position.history_version][1]
        places = [(lsn, row) for lsn, row, *_ in events]
        assert len(places) == len(set(places)), f"{table} has a change twice at cut {cut.number}, seed {SEED}"
        assert places == sorted(places)


@pytest.mark.parametrize("rounds", [60, pytest.param(600, marks=pytest.mark.full)])
def test_each_cut_is_one_state_of_the_source_after_any_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    """Transactions over three tables, one of which enters later; snapshots again; cycles of a few rows."""
    rng = random.Random(SEED)
    columns = {"id": "int8", "v": "text"}
    tables = [SimulatedTable(schema(n, columns, ("id",), Identity.DEFAULT, 900 + i)) for i, n in enumerate(TABLES)]
    source, lake = SimulatedSource(tmp_path, tables), StandIn(rng)
    # inside: hundreds of cycles, without Spark and Delta
    monkeypatch.setattr(apply_cycle, "write_table", lake.write_table)
    monkeypatch.setattr(cycle, "sync_commits", lambda *_: lake.step("in sync"))  # inside: the same
    context = SimpleNamespace(_gateway=None, master="local[2]")
    spark: Any = SimpleNamespace(newSession=lambda: None, sparkContext=context)
    # There is no driver that could be lost, and no JVM in which deletion vectors could be tried.
    monkeypatch.setattr("lakeproof.commands.compact.at_work", lambda *_: nullcontext())  # inside: the same
    for name in ("refuse_too_large", "fit_table"):
        monkeypatch.setattr(apply_cycle, name, lambda *_: None)  # inside: the same
    # One or two copies in a cycle, or all that wait.
    config = make_config(tmp_path, cycle_rows=20, engine="spark", cycle_copies=rng.choice([1, 2, 32]))
    source.snapshot(TABLES[:2])
    checked = zombies = 0
    for number in range(rounds):
        for _ in range(rng.randrange(1, 5)):
            _transaction(rng, source)
        if number == 10 or rng.random() < 0.05:
            source.flush()
            source.snapshot(TABLES if number >= 10 else TABLES[:2])
        source.flush()
        while True:
            lake.dead.clear()
            try:
                with watched(_at(lake, _STEPS | _TAKING_BACK)):
                    run_compact(spark, config)
            except Crash:
                lost = list(lake.dead)
            else:
                break
            if lost and rng.random() < 0.2:
                # Another one finishes the cycle; then the dead one wakes up and goes on where it was.
                lake.chance, chance = 0, lake.chance
                run_compact(spark, config)
                with pytest.raises(TransientError):
                    lake.write_table(None, *rng.choice(lost))
                lake.chance, zombies = chance, zombies + 1
        newest = newest_number(source.lake.store, source.lake.paths.cuts)
        assert newest == newest_number(source.lake.store, source.lake.paths.intents)
        for actual in range(checked + 1, newest + 1):
            _check(source, lake, read_cut(source.lake, CycleNumber(actual)))
        checked = newest
        assert read_cut(source.lake, newest).position == source.chain.end
    # Twice to three times as many are usual, at eight places; fewer than one in each round would be another test.
    assert lake.crashes.total() > rounds, lake.crashes
    assert len(lake.crashes) >= 7, lake.crashes
    assert zombies > 0
    assert set(read_cut(source.lake, newest).tables) == {t.version.table for t in tables}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("crashes", "lake_place"),
    [
        (4, "folder"),
        pytest.param(200, "folder", marks=pytest.mark.full),
        pytest.param(60, "s3", marks=pytest.mark.full),
        pytest.param(60, "versitygw", marks=pytest.mark.full),
    ],
    indirect=["lake_place"],
)
def test_the_same_holds_of_real_commits(lake_place: LakeLocation, spark: SparkSession, crashes: int) -> None:
    """Each interrupted cycle is finished by the next compaction; at every one's end the lake is the source."""
    rng = random.Random(SEED)
    columns = {"id": "int8", "v": "text"}
    tables = [SimulatedTable(schema(n, columns, ("id",), Identity.DEFAULT, 900 + i)) for i, n in enumerate(TABLES)]
    source, steps = SimulatedSource(lake_place, tables), StandIn(rng, chance=0.25)
    config = make_config(lake_place)
    source.snapshot(TABLES[:2])
    rounds = 0
    while steps.crashes.total() < crashes or rounds < 2:
        for _ in range(4):
            _transaction(rng, source)
        source.flush()
        if rounds == 1:
            source.snapshot(TABLES)
        done = False
        while not done:
            places = _WITH_COMMITS if steps.crashes.total() < crashes else set()
            with suppress(Crash), watched(_at(steps, places)):
                run_compact(spark, config)
                done = True
        check(config, source, list(TABLES if rounds else TABLES[:2]))
        rounds += 1
    for table in source.tables.values():
        history = read_lake(config).history(SOURCE, table.version.table).select("_lp_lsn", "_lp_seq", "_lp_op")
        changes = [tuple(r.values()) for r in history.arrow().to_pylist() if r["_lp_seq"] is not None]
        assert len(changes) == len(set(changes)), f"{table.version.table} has a change twice, seed {SEED}"
