"""Changes left history at once, or never, since an upstream's wrong clock had set the times of their commits."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.maintain import MaintenanceRequest, maintain
from lakeproof.events import silent
from lakeproof.storage.times import time_of
from tests.support.lake.lake_steps import check, make_config, run_compact
from tests.support.lake.maintain_steps import BAG, LINES, TABLES, begun, newest_cut_of, policy
from tests.support.lake.simulated_source import SOURCE
from tests.support.workloads.lake_workload import random_row

pytestmark = pytest.mark.spark
_DAY_S = 86_400


@pytest.mark.full
@pytest.mark.parametrize("year", [1971, 2490])
def test_history_is_kept_for_its_time_from_when_it_came(spark: SparkSession, tmp_path: Path, year: int) -> None:
    """Less than a day after the lake has them they stay, a day after they go; what came later stays as long itself."""
    rng, source = begun(tmp_path)
    config = policy(tmp_path, history_s=_DAY_S, cuts_s=100 * _DAY_S, small_files=1000)
    wrong_us = int(datetime(year, 1, 1, tzinfo=timezone.utc).timestamp() * 1e6)

    def changed() -> None:
        for name in TABLES:
            source.insert(source.table(name), random_row(rng, source.table(name)))
        for rows in source._waiting.values():
            for row in rows:
                row["us"] = wrong_us
        source.commit(rng)
        source.flush()
        run_compact(spark, make_config(tmp_path))

    changed()
    first = time_of(newest_cut_of(config).created_at)
    changed()
    end = newest_cut_of(config).ordinals.whole
    for after, trimmed in ((timedelta(days=1, milliseconds=-1), ()), (timedelta(days=1, milliseconds=1), {LINES, BAG})):
        done = maintain(config, SOURCE, spark, silent, MaintenanceRequest(now=first + after))
        assert set(done.trimmed) == set(trimmed)
    low = newest_cut_of(config).tables[LINES].history_low
    assert low is not None
    assert low.ordinal < end, "what the second cut brought is a day old a moment later"
    check(config, source, list(TABLES))
