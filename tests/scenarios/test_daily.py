"""Days: each table as it was at the end of each UTC day, made in any order and again, and what can't be known any more.

Dagster's half is in `tests/shell/runs/test_daily_in_dagster.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakeproof.commands.daily import daily
from lakeproof.commands.maintain import MaintenanceRequest, maintain
from lakeproof.config.model import Config
from lakeproof.config.section.upkeep import RetentionConfig
from lakeproof.errors import ConfigError, LakeError
from lakeproof.events import RunControl, silent
from lakeproof.hidden_columns import HIDDEN_PREFIX
from lakeproof.lake.delta.files.needed import table_files
from lakeproof.lake.delta.log.commits import newest_version
from lakeproof.lake.records.store import cut_numbers, read_cut
from lakeproof.names import CycleNumber, TableName
from lakeproof.schema import Identity
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import time_of
from tests.support.lake.lake_steps import check, make_config, run_compact
from tests.support.lake.simulated_rows import Row, canonical, schema
from tests.support.lake.simulated_source import SOURCE, SimulatedSource, SimulatedTable

pytestmark = pytest.mark.spark
RNG = random.Random(4)
ITEMS, BAG = TableName("app", "items"), TableName("app", "bag")
# A commit's time grows by a millisecond with each byte of the simulated log.
_A_DAY = 86_400_000


def _next_day(source: SimulatedSource) -> None:
    source.lsn += _A_DAY


def _day_of(source: SimulatedSource) -> date:
    return max(source.times.values()).date()


def _filled(folder: Path, spark: SparkSession, *, cuts: bool) -> tuple[Config, SimulatedSource, dict[date, int]]:
    """Three days of changes, with a cut on each day or one for all of them; and the position at the end of each day."""
    items = SimulatedTable(schema("items", {"id": "int4", "v": "text"}, ["id"], Identity.DEFAULT, 16_400))
    # Spark takes -0.0 for 0.0 where it compares whole rows.
    bag = SimulatedTable(schema("bag", {"v": "text", "f": "float8"}, [], Identity.FULL, 16_401))
    source = SimulatedSource(folder, [items, bag])
    plain = make_config(folder)
    chosen = plain.sources[SOURCE].model_copy(update={"tables": (ITEMS, BAG), "daily": (ITEMS, BAG)})
    config = plain.model_copy(update={"sources": {SOURCE: chosen}})
    for n in range(5):
        source.insert(items, (n, f"first {n}"))
    source.commit(RNG)
    source.flush()
    source.snapshot(["items", "bag"])
    ends: dict[date, int] = {}
    for n in range(3):
        _next_day(source)
        source.update(items, items.rows[0], (items.rows[0][0], f"day {n}"))
        source.delete(items, items.rows[-1])
        source.insert(items, (100 + n, "new"))
        source.insert(bag, ("x", -0.0))
        source.insert(bag, (f"y{n}", 0.0))
        source.commit(RNG)
        if n == 1:
            source.delete(bag, ("x", -0.0))
            source.commit(RNG)
        source.flush()
        ends[_day_of(source)] = source.lsn
        if cuts or n == 2:
            run_compact(spark, config)
    return config, source, ends


def _rows(spark: SparkSession, config: Config, table: TableName, day: date) -> Counter[Row]:
    lake = SourceLake.open(config.location, SOURCE)
    frame = spark.read.format("delta").load(lake.url(lake.paths.daily(table)))
    assert not [name for name in frame.columns if name.startswith(HIDDEN_PREFIX)]
    return Counter(canonical(tuple(row)) for row in frame.where(F.col("day") == F.lit(day)).drop("day").collect())


def _check_days(spark: SparkSession, config: Config, source: SimulatedSource, ends: dict[date, int]) -> None:
    for day, lsn in ends.items():
        for table in (ITEMS, BAG):
            assert _rows(spark, config, table, day) == source.states[lsn][table], (day, table)


@pytest.mark.full
@pytest.mark.parametrize("cuts", [True, False])
def test_days_are_what_the_source_had_and_are_made_again_without_a_trace(
    spark: SparkSession, tmp_path: Path, cuts: bool
) -> None:
    """From cuts, or from history alone; the days of a run in any order, one again, all add up."""
    config, source, ends = _filled(tmp_path, spark, cuts=cuts)
    check(config, source, ["items", "bag"])
    days = sorted(ends)
    report = daily(config, SOURCE, days, spark, RunControl())
    _check_days(spark, config, source, ends)
    for table in (ITEMS, BAG):
        results = report.tables[table]
        assert [day.audit.status for day in results] == ["first", "equal", "equal"], results
        assert [day.is_over for day in results] == [True, True, False]
    again = daily(config, SOURCE, days[1:2], spark, RunControl(), [ITEMS])
    assert [day.audit.status for day in again.tables[ITEMS]] == ["equal"]
    _check_days(spark, config, source, ends)
    lake = SourceLake.open(config.location, SOURCE)
    place = lake.url(lake.paths.daily(ITEMS))
    version = newest_version(place)
    later = datetime.now(timezone.utc) + timedelta(days=8)
    freed = maintain(config, SOURCE, spark, silent, MaintenanceRequest(now=later)).freed["days"]
    assert freed.files >= 1
    # A day that was made again has left nothing behind.
    assert len({file.path.partition("/")[0] for file in table_files(place, version).newest}) == len(days)
    _check_days(spark, config, source, ends)


def test_a_day_that_is_not_kept_or_has_not_begun_is_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The error names the oldest day; a table that is not chosen, and a day of the future, are mistakes."""
    config, _source, ends = _filled(tmp_path, spark, cuts=False)
    first = min(ends)
    with pytest.raises(LakeError, match=f"the oldest day is {first}"):
        daily(config, SOURCE, [first - timedelta(days=40), first], spark, RunControl())
    lake = SourceLake.open(config.location, SOURCE)
    assert newest_version(lake.url(lake.paths.daily(ITEMS))) < 0
    with pytest.raises(ConfigError, match="it has not begun"):
        daily(config, SOURCE, [datetime.now(timezone.utc).date() + timedelta(days=2)], spark, RunControl())
    with pytest.raises(ConfigError, match=r"did you mean app\.items"):
        daily(config, SOURCE, [first], spark, RunControl(), [TableName("app", "item")])


@pytest.mark.full
def test_history_that_was_shortened_says_its_oldest_day(spark: SparkSession, tmp_path: Path) -> None:
    """A day that a kept cut still has is read from it; without the cut it can't be made any more; what is left can."""
    config, source, ends = _filled(tmp_path, spark, cuts=True)
    days = sorted(ends)
    first = time_of(read_cut(source.lake, CycleNumber(1)).created_at)
    now = first + timedelta(days=1, milliseconds=1)
    shortened = _with_retention(config, RetentionConfig(cuts_s=7 * 86_400, landing_s=7 * 86_400, history_s=86_400))
    assert maintain(shortened, SOURCE, spark, silent, MaintenanceRequest(now=now)).trimmed == (BAG, ITEMS)
    daily(shortened, SOURCE, days, spark, RunControl())
    _check_days(spark, shortened, source, ends)

    alone = _with_retention(config, RetentionConfig(cuts_s=0, landing_s=7 * 86_400, history_s=86_400))
    maintain(alone, SOURCE, spark, silent, MaintenanceRequest(now=now))
    assert min(cut_numbers(source.lake)) > len(days)
    with pytest.raises(LakeError, match=f"the oldest day is {days[1]}"):
        daily(alone, SOURCE, days[:1], spark, RunControl())
    daily(alone, SOURCE, days[1:], spark, RunControl())
    _check_days(spark, alone, source, ends)


def _with_retention(config: Config, retention: RetentionConfig) -> Config:
    chosen = config.sources[SOURCE].model_copy(update={"retention": retention})
    return config.model_copy(update={"sources": {SOURCE: chosen}})
