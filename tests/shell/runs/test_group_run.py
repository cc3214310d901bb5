"""A run of a group's compaction, launched as the UI launches it: two drains' landings become one cut of the group.

Which cuts a group can have is tested in `test_groups.py`. `LAKEPROOF_SEED` repeats a run.
"""

from __future__ import annotations

import os
import random
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from lakeproof.errors import ConfigError, LakeError
from lakeproof.lake.read.spark.open import open_lake
from lakeproof.lake.records.cuts.groups import newest_group_cut, read_group_cut
from lakeproof.storage.open import open_store
from tests.support.servers.fix_postgres import Database
from tests.support.servers.two_slots import GROUP, SOURCES, TwoSlots, lake_state
from tests.support.shell.launched import Dagster, dagster

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow, pytest.mark.full]
SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)


def _clock(slots: TwoSlots) -> datetime:
    """The server's time, by which commits are dated."""
    ((now,),) = slots.database.rows("SELECT clock_timestamp()")
    assert isinstance(now, datetime)
    return now


def _compacted(shown: Dagster) -> dict[str, Any]:
    """Run the group's compaction; return the position at which each asset that it reported stands."""
    run = shown.launch(f"{GROUP}_compaction")
    assert run.status is dg.DagsterRunStatus.SUCCESS
    positions = {}
    for record in shown.instance.all_logs(run.run_id):
        event = record.dagster_event
        if event is not None and event.is_step_materialization:
            done = event.step_materialization_data.materialization
            positions[done.asset_key.to_user_string()] = done.metadata["compacted_through_lsn"].value
    return positions


def test_a_run_brings_both_slots_to_one_position_and_a_time_finds_its_cut(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    """Every table of both sources at the position of the group's cut; a time between two cuts opens the first of them."""
    print(f"LAKEPROOF_SEED={SEED}")  # noqa: T201  a failure that raises names the seed, too
    slots = TwoSlots.make(database, tmp_path, SEED)
    before = _clock(slots)
    slots.transactions(20)
    for name in SOURCES:
        slots.drain(name)
    first_state, first_time = slots.state(), _clock(slots)
    store = open_store(slots.config.location)
    keys = {
        f"{layer}/{source}/public/{source}_{table}"
        for layer in ("history", "current")
        for source in SOURCES
        for table in ("log", "account")
    }
    with dagster(tmp_path / "dagster", slots.config.path) as shown:
        positions = _compacted(shown)
        first = newest_group_cut(store, GROUP)
        assert first is not None
        assert positions == dict.fromkeys(keys, str(first.position))
        slots.transactions(20)
        slots.drain("one")
        slots.drain("two", slots.states[-8][0])
        positions = _compacted(shown)
    second = newest_group_cut(store, GROUP)
    assert second is not None
    assert positions == dict.fromkeys(keys, str(second.position))
    assert second.position > first.position
    newest = lake_state(open_lake(spark, slots.config, group=GROUP))
    assert newest.whole
    assert newest in slots.allowed(second.position), f"LAKEPROOF_SEED={SEED}"

    assert lake_state(open_lake(spark, slots.config, at=first_time, group=GROUP)) == first_state
    assert lake_state(open_lake(spark, slots.config, at=_clock(slots), group=GROUP)) == newest
    for number, cut in ((1, first), (2, second)):
        assert cut.number == number
        assert cut.commit_time is not None
        exactly = datetime.fromisoformat(cut.commit_time)
        opened = open_lake(spark, slots.config, at=exactly.astimezone(timezone(timedelta(hours=5))), group=GROUP)
        assert {source: c.number for source, c in opened.cuts.items()} == {s: m.cut for s, m in cut.sources.items()}
        assert read_group_cut(store, GROUP, number) == cut
    just_before = datetime.fromisoformat(second.commit_time or "") - timedelta(microseconds=1)
    assert lake_state(open_lake(spark, slots.config, at=just_before, group=GROUP)) == first_state
    with pytest.raises(LakeError, match="no cut at or before"):
        open_lake(spark, slots.config, at=before, group=GROUP)
    with pytest.raises(ConfigError, match="without a zone"):
        open_lake(spark, slots.config, at=first_time.replace(tzinfo=None), group=GROUP)
