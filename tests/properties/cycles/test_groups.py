"""A group's cut has each transaction over tables of two slots wholly or not at all, wherever the two drains stand.

What a source's own cut has is tested in `test_pipeline.py`. `LAKEPROOF_SEED` repeats a run.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.compact import compact, compact_group
from lakeproof.config.location import LakeLocation
from lakeproof.errors import TransientError
from lakeproof.events import Stop, silent
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.lake.read.spark.open import open_lake
from lakeproof.lake.records.cuts.groups import group_cut_numbers, newest_group_cut
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.storage.open import open_store
from tests.support.servers.fix_postgres import Database
from tests.support.servers.two_slots import GROUP, SOURCES, TwoSlots, lake_state

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)


def _land(slots: TwoSlots, rng: random.Random) -> None:
    """Land some of what there is: one drain behind the other, or killed before or after a manifest."""
    for name in rng.sample(SOURCES, 2):
        match rng.choice(("all", "all", "some", "some", "nothing", "killed")):
            case "all":
                slots.drain(name)
            case "some":
                slots.drain(name, rng.choice(slots.states[-15:])[0])
            case "killed":
                failpoint = rng.choice(("drain.after_data_files", "drain.after_manifest"))
                slots.killed("drain", name, "--once", failpoint=f"{failpoint}:{rng.randrange(1, 4)}")
            case _:
                pass


@pytest.mark.parametrize(
    ("rounds", "lake_place"),
    [
        (1, "folder"),
        pytest.param(25, "folder", marks=pytest.mark.full),
        pytest.param(6, "s3", marks=pytest.mark.full),
        pytest.param(4, "versitygw", marks=pytest.mark.full),
    ],
    indirect=["lake_place"],
)
def test_every_cut_of_a_group_has_transactions_whole(
    database: Database, no_spark: SparkOnDemand, tmp_path: Path, lake_place: LakeLocation, rounds: int
) -> None:
    """Random transactions, drains and cuts: each cut of the group is what PostgreSQL had at its position, also later."""
    print(f"LAKEPROOF_SEED={SEED}")  # noqa: T201  a failure that raises names the seed, too
    rng = random.Random(SEED)
    slots = TwoSlots.make(database, tmp_path, SEED, lake_place)
    for name in SOURCES:
        slots.drain(name)
    for _ in range(rounds):
        compact_group(slots.config, GROUP, no_spark, silent, Stop())
        slots.transactions(rng.randrange(5, 40))
        _land(slots, rng)
        fresh = read_lake(slots.config, "landing", group=GROUP)
        (position,) = {fresh.position(name) for name in SOURCES}
        assert lake_state(fresh) in slots.allowed(position), f"landed up to {position}, LAKEPROOF_SEED={SEED}"
    for name in SOURCES:
        slots.drain(name)
    last = compact_group(slots.config, GROUP, no_spark, silent, Stop()).cut
    store = open_store(slots.config.location)
    numbers = group_cut_numbers(store, GROUP)
    assert last is not None
    assert numbers == list(range(1, last.number + 1))
    for number in numbers:
        lake = read_lake(slots.config, number, group=GROUP)
        (position,) = {cut.position for cut in lake.cuts.values()}
        state = lake_state(lake)
        assert state.whole, f"cut {number} at {position}, LAKEPROOF_SEED={SEED}"
        assert state in slots.allowed(position), f"cut {number} at {position}, LAKEPROOF_SEED={SEED}"
        assert read_lake(slots.config, position, group=GROUP).cuts.keys() == lake.cuts.keys()
    assert state == slots.state()


@pytest.mark.spark
@pytest.mark.full
def test_without_a_group_the_newest_cuts_tear_a_transaction(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    """Each source compacted by itself: half of a transaction is seen. The group waits for the slower one, then is whole."""
    slots = TwoSlots.make(database, tmp_path, SEED)
    slots.transactions(20)
    for name in SOURCES:
        slots.drain(name)
    first = compact_group(slots.config, GROUP, spark, silent, Stop()).cut
    slots.transactions(20)
    slots.drain("one")
    compact(slots.config, "one", spark, silent, Stop())
    torn = lake_state(open_lake(spark, slots.config))
    assert not torn.whole
    assert torn not in [state for _, state in slots.states]
    with pytest.raises(TransientError, match=r"two has landed up to .* and one can't be read before"):
        compact_group(slots.config, GROUP, spark, silent, Stop())
    assert newest_group_cut(open_store(slots.config.location), GROUP) == first
    assert lake_state(open_lake(spark, slots.config, group=GROUP)).whole
    slots.drain("two")
    report = compact_group(slots.config, GROUP, spark, silent, Stop())
    assert report.cut is not None
    assert report.cut.position >= open_lake(spark, slots.config).position("one")
    assert lake_state(open_lake(spark, slots.config, group=GROUP)) == slots.state()


@pytest.mark.parametrize(
    ("failpoint", "lake_place"),
    [
        pytest.param("group.before_cut", "folder", marks=pytest.mark.full),
        pytest.param("group.after_source", "folder", marks=pytest.mark.full),
        pytest.param("cycle.after_sync:2", "folder", marks=pytest.mark.full),
        pytest.param("group.after_source", "s3", marks=pytest.mark.full),
    ],
    indirect=["lake_place"],
)
def test_a_group_compaction_that_is_killed_is_finished_by_the_next_one(
    database: Database, no_spark: SparkOnDemand, tmp_path: Path, lake_place: LakeLocation, failpoint: str
) -> None:
    """Killed between the sources' cuts, before the group's, or in the second source's cycle: readers keep the cut before."""
    slots = TwoSlots.make(database, tmp_path, SEED, lake_place)
    slots.transactions(10)
    for name in SOURCES:
        slots.drain(name)
    compact_group(slots.config, GROUP, no_spark, silent, Stop())
    before = lake_state(read_lake(slots.config, group=GROUP))
    slots.transactions(10)
    slots.drain("one")
    slots.drain("two", slots.states[-5][0])
    assert slots.killed("compact", "--group", GROUP, failpoint=failpoint) == -9
    assert lake_state(read_lake(slots.config, group=GROUP)) == before
    slots.transactions(3)
    slots.drain("two")
    slots.half_a_minute_later()
    report = compact_group(slots.config, GROUP, no_spark, silent, Stop())
    assert report.cut is not None
    assert report.cut.number == 2
    state = lake_state(read_lake(slots.config, group=GROUP))
    assert state.whole
    assert state in slots.allowed(report.cut.position)
