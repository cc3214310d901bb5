"""The power goes at any fsync of a compaction, a refresh or a maintenance: the next one makes the lake what the source is.

What is on the disk then is simulated by `tests.support.faults.power_cut`: of all that was written since the last sync any
part is whole, empty, cut short, or not there. Spark and Delta are real, and one JVM reads all the states that are tried.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.maintain import maintain
from lakeproof.commands.refresh import refresh
from lakeproof.config.model import Config, ViewConfig
from lakeproof.events import silent
from lakeproof.failpoints import watched
from lakeproof.lake.columns import in_lake
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.fold.history import replayed
from lakeproof.lake.fold.unchanged_values import completing
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.lake.records.views.cuts import newest_view_cut, view_path
from lakeproof.names import TableName
from lakeproof.storage.open import open_store
from lakeproof.storage.source_lake import SourceLake
from tests.support.faults.crashes import Crash
from tests.support.faults.power_cut import PowerCut
from tests.support.lake.lake_steps import check, run_compact
from tests.support.lake.maintain_steps import policy
from tests.support.lake.simulated_rows import rows_of
from tests.support.lake.simulated_source import SOURCE, SimulatedSource
from tests.support.workloads.lake_workload import insert_random_row, make_tables, run_transactions

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
# Of hundreds; each takes half a minute.
STATES = 60
ALTERED, OTHER = "order lines", "bag"
pytestmark = [pytest.mark.spark, pytest.mark.slow]


def configured(lake: Path, sql: Path) -> Config:
    """The simulated source with one view."""
    sql.write_text("SELECT a, count(*) AS n FROM bag GROUP BY a", encoding="utf-8")
    view = ViewConfig(name="counted", sql_file=sql, reads={"bag": (SOURCE, TableName("app", OTHER))})
    return policy(lake, small_files=2).model_copy(update={"views": {"counted": view}})


@pytest.mark.full
def test_a_cycle_recovers_from_any_power_cut(spark: SparkSession, tmp_path: Path) -> None:
    """Covers first cycles, changes, a change of schema, a view and small files combined; then changes go on."""
    rng = random.Random(SEED)
    lake = tmp_path / "lake"
    lake.mkdir()
    source = SimulatedSource(lake, [t for t in make_tables() if t.version.table.name in (ALTERED, OTHER)])
    config = configured(lake, tmp_path / "view.sql")
    source.snapshot([ALTERED, OTHER])
    run_transactions(rng, source, 12)
    with PowerCut(lake) as power:
        run_compact(spark, config)
        refresh(config, None, spark)
        table = source.table(ALTERED)
        columns = [replace(c, name="re named") if c.name == "note" else c for c in table.version.columns]
        table.version = replace(table.version, columns=tuple(columns))
        insert_random_row(rng, source, table)
        run_transactions(rng, source, 6)
        run_compact(spark, config)
        refresh(config, None, spark)
        maintain(config, SOURCE, spark, silent)
    run_transactions(rng, source, 4)
    states = list(power.states(rng, 4))
    assert len(states) > 200, "so many fsyncs are usual"
    for number, state in enumerate(rng.sample(states, STATES)):
        actual = state.build(tmp_path / f"state{number}")
        try:
            recovered(spark, actual, source, tmp_path / "view.sql")
        except Exception as error:
            raise AssertionError(f"seed {SEED}, {state.moment.number} of {len(power.moments)}, {state}") from error
        shutil.rmtree(actual)


def recovered(spark: SparkSession, lake: Path, source: SimulatedSource, sql: Path) -> None:
    """Go on there with all that the source has sent: tables, history and view are right, and nothing is held."""
    shutil.copytree(source.folder / SOURCE / "landing", lake / SOURCE / "landing", dirs_exist_ok=True)
    config = configured(lake, sql)
    run_compact(spark, config)
    held = read_lake(config).cuts[SOURCE].held
    assert not held, dict(held)
    maintain(config, SOURCE, spark, silent)
    check(config, source, [ALTERED, OTHER])
    replays(spark, config, source)
    refresh(config, None, spark)
    _check_view(spark, config)


def replays(spark: SparkSession, config: Config, source: SimulatedSource) -> None:
    """History alone makes the table that did not change its schema; the other one has each change once."""
    lake, cut = SourceLake.open(config.lake, SOURCE), read_lake(config).cuts[SOURCE]
    position = cut.tables[TableName("app", OTHER)]
    history = read_layer(spark, lake, TableName("app", OTHER), position, "history")
    rows = replayed(spark, in_lake(position.version), history, completing(position, history))
    assert rows_of(rows, position.version) == source.state_at(cut.position)[TableName("app", OTHER)]
    history = read_layer(spark, lake, TableName("app", ALTERED), cut.tables[TableName("app", ALTERED)], "history")
    ordinals = [r[0] for r in history.select("_lp_ord").collect()]
    assert len(ordinals) == len(set(ordinals))
    changes = spark.read.format("delta").load(lake.url(lake.paths.schema_history)).select("cycle", "table").collect()
    assert len(changes) == len(set(changes)) == 1


def _check_view(spark: SparkSession, config: Config) -> None:
    rows = read_lake(config).table(SOURCE, TableName("app", OTHER)).select("a").arrow().to_pylist()
    newest = newest_view_cut(open_store(config.lake), "counted")
    assert newest is not None
    view = spark.read.format("delta").option("versionAsOf", newest.delta_version)
    actual = view.load(view_path(open_store(config.lake), "counted")).select("a", "n").collect()
    assert Counter({r["a"]: r["n"] for r in actual}) == Counter(r["a"] for r in rows)
    assert len(actual) == len({r["a"] for r in rows})


@pytest.mark.parametrize("lost", ["commits", pytest.param("data", marks=pytest.mark.full)])
def test_a_checksum_without_its_commit_and_a_commit_without_its_data(
    spark: SparkSession, tmp_path: Path, lost: str
) -> None:
    """The power goes before the sync: rows came twice for good, and history that could never be read was in the cut."""
    rng = random.Random(SEED)
    source = SimulatedSource(tmp_path, [t for t in make_tables() if t.version.table.name in (ALTERED, OTHER)])
    config = policy(tmp_path)
    source.snapshot([ALTERED, OTHER])
    run_transactions(rng, source, 12)
    run_compact(spark, config)
    whole = {file for file in tmp_path.rglob("*") if file.is_file()}
    run_transactions(rng, source, 6)

    def crash(name: str) -> None:
        if name == "cycle.after_tables":
            raise Crash(name)

    with watched(crash), pytest.raises(Crash):
        run_compact(spark, config)
    for layer in ("history", "current"):
        for file in (tmp_path / SOURCE / layer).rglob("*"):
            if file in whole or not file.is_file():
                continue
            if lost == "data" and "_delta_log" not in file.parts:
                file.unlink()
            if lost == "commits" and file.suffix == ".json":
                file.write_bytes(b"")
    run_compact(spark, config)
    check(config, source, [ALTERED, OTHER])
    run_transactions(rng, source, 6)
    run_compact(spark, config)
    check(config, source, [ALTERED, OTHER])
    cut = read_lake(config).cuts[SOURCE]
    for table, position in cut.tables.items():
        history = read_layer(spark, source.lake, table, position, "history")
        rows = replayed(spark, in_lake(position.version), history, completing(position, history))
        assert rows_of(rows, position.version) == source.state_at(cut.position)[table]
