"""The cycle's protocol under many crashes: every cut names one state of the source, and nothing is applied twice.

A crash here is an exception that nobody may catch; processes are killed in `test_compaction_killed.py`. A writer that slept,
and goes on when another has finished its cycle, is in `test_compaction_sleeps_on_s3.py`.
"""

from __future__ import annotations

import os
import random
from contextlib import suppress

import pytest

from lakeproof.config.location import LakeLocation
from lakeproof.lake.read.arrow.open import ReadLake
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.store import newest_number, read_cut
from lakeproof.lake.spark_on_demand import AnySpark
from lakeproof.names import CycleNumber
from lakeproof.schema import Identity
from tests.support.faults.crashes import Crash, Crashes
from tests.support.lake.lake_steps import make_config, run_compact
from tests.support.lake.simulated_rows import rows_of, schema
from tests.support.lake.simulated_source import SOURCE, SimulatedSource, SimulatedTable

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
TABLES = ("a", "b", "late")
_PLACES = {
    "cycle.after_intent",
    "cycle.after_tables",
    "cycle.after_sync",
    "cycle.after_cut",
    "cycle.before_taken_back",
    "cycle.after_taken_back",
    "cycle.after_history",
    "cycle.after_current",
    "apply.before_commit",
    "apply.after_commit",
    "apply.after_links",
    "links.after_name",
}


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


def _check(source: SimulatedSource, place: LakeLocation, cut: Cut) -> None:
    """Each table at the cut is what the source was there; history has each change once."""
    state, lake = source.state_at(cut.position), ReadLake(place, {SOURCE: cut})
    for table in cut.tables:
        version = source.tables[table].version
        actual = rows_of(lake.table(SOURCE, table, hidden=True), version)
        assert actual == state[table], f"{table} at cut {cut.number}, seed {SEED}"
        history = lake.history(SOURCE, table).select("_lp_lsn", "_lp_seq", "_lp_op").arrow().to_pylist()
        changes = [tuple(row.values()) for row in history if row["_lp_seq"] is not None]
        assert len(changes) == len(set(changes)), f"{table} has a change twice at cut {cut.number}, seed {SEED}"


@pytest.mark.parametrize(
    ("crashes", "lake_place", "by"),
    [
        (25, "folder", "no_spark"),
        pytest.param(4, "folder", "spark", marks=pytest.mark.spark),
        pytest.param(1000, "folder", "no_spark", marks=pytest.mark.full),
        pytest.param(200, "folder", "spark", marks=[pytest.mark.spark, pytest.mark.full]),
        pytest.param(60, "s3", "spark", marks=[pytest.mark.spark, pytest.mark.full]),
        pytest.param(60, "versitygw", "spark", marks=[pytest.mark.spark, pytest.mark.full]),
    ],
    indirect=["lake_place"],
)
def test_each_cut_is_one_state_of_the_source_after_any_crash(
    lake_place: LakeLocation, request: pytest.FixtureRequest, crashes: int, by: str
) -> None:
    """Transactions over three tables, one of which enters later; small cycles; copies again, which Spark compares."""
    spark: AnySpark = request.getfixturevalue(by)
    rng = random.Random(SEED)
    columns = {"id": "int8", "v": "text"}
    tables = [SimulatedTable(schema(n, columns, ("id",), Identity.DEFAULT, 900 + i)) for i, n in enumerate(TABLES)]
    source, crashing = SimulatedSource(lake_place, tables), Crashes(rng, chance=0.12 if by == "no_spark" else 0.25)
    # Cycles of a few rows, of one or two copies or all that wait; with Spark fewer, for each takes seconds.
    rows, copies = (20, rng.choice([1, 2, 32])) if by == "no_spark" else (2_000_000, 32)
    config = make_config(lake_place, cycle_rows=rows, cycle_copies=copies)
    source.snapshot(TABLES[:2])
    checked = rounds = 0

    def enough() -> bool:
        return crashing.hit.total() >= crashes and len(crashing.hit) >= min(7, crashes // 2)

    while not enough() or rounds < 3:
        for _ in range(rng.randrange(1, 9)):
            _transaction(rng, source)
        source.flush()
        if rounds == 2:
            source.snapshot(TABLES if by == "spark" else TABLES[2:])
        done = False
        while not done:
            # Each interrupted cycle is finished by the next compaction.
            with suppress(Crash), crashing.possible_at(() if enough() else _PLACES):
                run_compact(spark, config)
                done = True
        newest = newest_number(source.lake.store, source.lake.paths.cuts)
        assert newest == newest_number(source.lake.store, source.lake.paths.intents)
        for number in range(checked + 1, newest + 1):
            _check(source, lake_place, read_cut(source.lake, CycleNumber(number)))
        checked, rounds = newest, rounds + 1
        assert read_cut(source.lake, newest).position == source.chain.end
    assert set(read_cut(source.lake, newest).tables) == {t.version.table for t in tables}
