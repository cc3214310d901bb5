"""Ordinals decide which rows of history a cut has, whatever cycle wrote them: cycles end anywhere, with corrections.

The arithmetic alone is in `tests/core/lake/test_landing_order.py`; here real cycles write the rows.
"""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakeproof
from lakeproof.config.model import Config
from lakeproof.errors import LakeError
from lakeproof.hidden_columns import LSN, ORD
from lakeproof.lake.read.spark.open import open_lake
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.store import cut_numbers, read_cut
from lakeproof.lsn import Lsn
from lakeproof.schema import Identity
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.lake_steps import check, make_config, run_compact
from tests.support.lake.simulated_rows import rows_of, schema
from tests.support.lake.simulated_source import SOURCE, SimulatedSource, SimulatedTable
from tests.support.workloads.lake_workload import SEED, insert_random_row, random_row, random_transaction, with_key

pytestmark = pytest.mark.spark
KEYED, BAG, LATE = "keyed", "bag", "late"
EARLY = [KEYED, BAG]


def _tables() -> list[SimulatedTable]:
    """Whole numbers alone: without large values, a copy that enters beside changes is planned in seconds."""
    kinds = {"id": "int4", "n": "int8"}
    return [
        SimulatedTable(schema(KEYED, kinds, ("id",), Identity.DEFAULT, 1101)),
        SimulatedTable(schema(BAG, kinds, (), Identity.FULL, 1102)),
        SimulatedTable(schema(LATE, kinds, (), Identity.NOTHING, 1103)),
    ]


@pytest.mark.full
def test_a_cut_has_the_rows_that_its_ordinals_say(spark: SparkSession, tmp_path: Path) -> None:
    """Corrections inside segments, a table that enters late: rows stand in the order in which they became true."""
    rng = random.Random(SEED)
    source = SimulatedSource(tmp_path, _tables())
    config = make_config(tmp_path)
    for name in EARLY:
        for _ in range(5):
            insert_random_row(rng, source, source.table(name))
    source.commit(rng)
    source.flush()
    source.snapshot(EARLY, chunk_rows=3)
    for turn in range(3):
        earlier = _transactions(rng, source, 4)
        if turn > 0:
            _lose_a_row(rng, source, KEYED)
            source.snapshot([LATE, KEYED] if turn == 1 else EARLY)
        later = _transactions(rng, source, 4)[:-1]
        source.flush()
        # In the middle of the segment; in the second one before and after its copy, so that a cycle begins and ends in it.
        for end in [rng.choice(earlier), rng.choice(later)] if turn == 1 else [rng.choice([*earlier, *later])]:
            run_compact(spark, config, end)
    run_compact(spark, config)
    check(config, source, [*EARLY, LATE])
    cuts = [read_cut(source.lake, n) for n in cut_numbers(source.lake)]
    assert any(cut.ordinals.whole < cut.ordinals.end for cut in cuts), f"seed {SEED}: no cut ended inside a segment"
    _check_cuts(spark, source.lake, cuts)
    _check_readers(spark, config, source, cuts)


def _transactions(rng: random.Random, source: SimulatedSource, count: int) -> list[Lsn]:
    places = []
    for _ in range(count):
        random_transaction(rng, source)
        places.append(source.commit(rng))
    return places


def _lose_a_row(rng: random.Random, source: SimulatedSource, name: str) -> None:
    table = source.table(name)
    row = with_key(table, random_row(rng, table), (int(source.lsn),))
    source.insert(table, row, lost=True)
    source.commit(rng)


def _check_cuts(spark: SparkSession, lake: SourceLake, cuts: list[Cut]) -> None:
    for table, newest in cuts[-1].tables.items():
        history = spark.read.format("delta").load(lake.url(lake.paths.history(table)))
        rows = [(r[0], Lsn(r[1])) for r in history.select(ORD, LSN).orderBy(ORD).collect()]
        assert all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(rows)), f"{table}, seed {SEED}"
        assert newest.history_sum.rows == len(rows)
        for cut in cuts:
            then = cut.tables.get(table)
            if then is not None:
                actual = {ordinal for ordinal, lsn in rows if then.ordinals.has(ordinal, lsn, then.at_lsn)}
                stored = spark.read.format("delta").option("versionAsOf", then.history_version)
                of_cut = stored.load(lake.url(lake.paths.history(table))).select(ORD)
                assert actual == {r[0] for r in of_cut.collect()}, f"{table} at cut {cut.number}, seed {SEED}"


def _check_readers(spark: SparkSession, config: Config, source: SimulatedSource, cuts: list[Cut]) -> None:
    """Positions inside cycles, up to where the first copy entered that differed, and the changes of all cuts together."""
    table = source.table(KEYED).version
    entered = next(n for n, cut in enumerate(cuts) if cut.tables[table.table].exact_from is not None)
    exact_until, exact_from = cuts[entered - 1].position, cuts[entered].tables[table.table].exact_from
    assert exact_from is not None
    for place in [p for p in sorted(source.states) if cuts[0].position < Lsn(p) < exact_from][::2]:
        try:
            actual = lakeproof.as_of(spark, config, Lsn(place)).table(table.table, hidden=True)
        except LakeError:
            # A change before the copy may never have been sent.
            assert Lsn(place) > exact_until, f"{place}, seed {SEED}"
            continue
        assert Lsn(place) <= exact_until, f"{place}, seed {SEED}"
        assert rows_of(actual, table) == source.state_at(Lsn(place))[table.table], f"{place}, seed {SEED}"
    counts = lakeproof.changes(spark, config, 0).table(table.table).groupBy("kind").count().collect()
    by_kind = {r[0]: r[1] for r in counts}
    now = open_lake(spark, config).table(SOURCE, table.table).count()
    assert by_kind.get("insert", 0) - by_kind.get("delete", 0) == now, f"seed {SEED}"
