"""A table that gets many small cycles has a bounded number of data files, commits and checkpoints, unmaintained.

Real PostgreSQL, a drain and a compaction per step. Times do not belong here: `bench.lake.many_cycles` measures them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from psycopg.sql import SQL

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.commands.maintain import maintain
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.config.section.upkeep import RetentionConfig
from lakeproof.drain.until import Until
from lakeproof.events import Event, Stop, silent
from lakeproof.failpoints import watched
from lakeproof.lake.delta.log.commits import log_files
from lakeproof.lake.delta.log.protocol import CHECKPOINT_INTERVAL
from lakeproof.lake.delta.log.state import TOMBSTONES_MAX, Replay, read_state
from lakeproof.lake.records.documents import Cut, CycleKind
from lakeproof.lake.records.store import cut_numbers, newest_cut
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import TableName
from lakeproof.proof.run import ProofRequest
from lakeproof.storage.folder import Folder
from lakeproof.storage.source_lake import SourceLake
from tests.support.ingest.fix_drain import SOURCE, make_config
from tests.support.lake.compare import lake_rows, source_rows, table_columns
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres
TABLE = TableName("public", "t")
SMALL_FILES = 6
# What is left of each size when nothing larger is written again, up to the bytes of a file that is not small.
SIZES = 6


def _no_jvm() -> Any:
    """Fail: small files are put together without Spark."""
    pytest.fail("a JVM was asked for")


SPARK = SparkOnDemand(_no_jvm)


@pytest.fixture
def config(database: Database, tmp_path: Path) -> Config:
    """A table of some rows whose copy is in the lake."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, n int, note text)",
        "INSERT INTO t SELECT n, 0, 'first' FROM generate_series(1, 50) n",
        "CREATE PUBLICATION shop FOR ALL TABLES",
    )
    config = make_config(database.dsn, tmp_path / "lake", database.name)
    kept = RetentionConfig(small_files=SMALL_FILES, cuts_max=10, landing_s=0)
    source = config.sources[SOURCE].model_copy(update={"retention": kept})
    config = config.model_copy(update={"sources": {SOURCE: source}})
    bootstrap(config, SOURCE)
    return config


def _cycle(config: Config, database: Database, number: int) -> Cut:
    """An update of an old row, an insert and now and then a delete, in a cycle of their own."""
    statements = ["INSERT INTO t VALUES ({n} + 1000, {n}, 'new')", "UPDATE t SET n = {n} WHERE id = 1 + {n} % 50"]
    statements += ["DELETE FROM t WHERE id = {n} + 990"] if number % 3 == 0 else []
    database.execute(*(SQL(statement).format(n=number) for statement in statements))
    return _compacted(config)


def _compacted(config: Config) -> Cut:
    drain(config, SOURCE, Until.caught_up())
    compact(config, SOURCE, SPARK, silent, Stop())
    cut = newest_cut(SourceLake.open(config.location, SOURCE))
    assert cut is not None
    assert not cut.held
    return cut


def _tables(config: Config, cut: Cut) -> dict[str, tuple[str, int]]:
    lake, state = SourceLake.open(config.location, SOURCE), cut.tables[TABLE]
    return {
        "history": (lake.url(lake.paths.history(TABLE)), state.history_version),
        "current": (lake.url(lake.paths.current(TABLE)), state.current_version),
    }


def _check_rows(config: Config, database: Database, cut: Cut) -> None:
    path, version = _tables(config, cut)["current"]
    assert lake_rows(path, version, *table_columns(database.dsn, TABLE)) == source_rows(database.dsn, (TABLE,))[TABLE]


@pytest.mark.slow
@pytest.mark.parametrize("cycles", [56, pytest.param(300, marks=pytest.mark.full)])
def test_many_cycles_leave_few_files(database: Database, config: Config, cycles: int) -> None:
    """No step has more files than the bound; the log goes with the cuts that are not kept; source and lake are equal."""
    cut = _compacted(config)
    for number in range(cycles):
        cut = _cycle(config, database, number)
        for layer, (path, version) in _tables(config, cut).items():
            files = len(read_state(path, version).files)
            assert files <= SMALL_FILES + SIZES, f"{layer} has {files} files after cycle {number}"
    assert cut.number > cycles + cycles // (SMALL_FILES + SIZES), "cycles have put files together"
    _check_rows(config, database, cut)
    maintain(config, SOURCE, SPARK, silent)
    assert len(cut_numbers(SourceLake.open(config.location, SOURCE))) == 10
    for path, _ in _tables(config, cut).values():
        names = log_files(Folder.at(path))
        assert sum(name.endswith(".json") for name in names) <= 10 + CHECKPOINT_INTERVAL
        assert sum(".checkpoint." in name for name in names) <= 2
    _check_rows(config, database, cut)
    proof = prove(config, SOURCE, None, SPARK, request=ProofRequest(history=True))
    assert proof.equal
    assert proof.lake is not None
    assert {part.status for part in proof.lake.histories.values()} == {"equal"}


def test_a_packing_that_was_ended_is_finished_first(database: Database, config: Config) -> None:
    """History is put together already, current not yet: the next compaction ends that cycle, and goes on."""

    def end(place: str) -> None:
        if place == "maintenance.after_history":
            raise KeyboardInterrupt

    _compacted(config)
    number = 0
    with watched(end):
        while True:
            try:
                _cycle(config, database, number)
            except KeyboardInterrupt:
                break
            number += 1
            assert number < 3 * SMALL_FILES, "no cycle puts files together"
    events: list[Event] = []
    compact(config, SOURCE, SPARK, events.append, Stop())
    assert events[0].kind == "compact.resume"
    cut = newest_cut(SourceLake.open(config.location, SOURCE))
    assert cut is not None
    assert cut.kind is CycleKind.MAINTENANCE
    _check_rows(config, database, cut)
    _check_rows(config, database, _cycle(config, database, 500))


def test_tombstones_do_not_grow_with_a_tables_cycles() -> None:
    """A table of many removed files names the newest of them in its checkpoints."""
    replay = Replay()
    replay.take([("protocol", {}), ("metaData", {"schemaString": "{}"})])
    replay.take([("remove", {"path": f"{n}.parquet"}) for n in range(3 * TOMBSTONES_MAX)])
    state = replay.state("t", 1, "digest")
    assert [action["path"] for action in state.removed.values()] == [
        f"{n}.parquet" for n in range(2 * TOMBSTONES_MAX, 3 * TOMBSTONES_MAX)
    ]
