"""The whole pipeline under a random workload: at every position the lake is what PostgreSQL was.

Single rooms are tested elsewhere; here nothing is taken apart. `LAKEPROOF_SEED` repeats a run. `make test` publishes the
table with all that keys and large values do, and another one by chance, and looks at one position in the stream and at the
end; `make test-all` publishes all five, looks at more positions and snapshots again under load.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.commands.prove import prove
from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.lake.records.store import newest_cut
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.compare import Rows, current_lsn, lake_rows, source_rows, table_columns
from tests.support.servers.fix_postgres import Database
from tests.support.spark.fix_lake import options_of
from tests.support.spark.spark_steps import TABLES_ALONE
from tests.support.workloads.pipeline_steps import _SOURCE, Tables, pipeline_config, publish
from tests.support.workloads.random_workload import TABLES, RandomWorkload

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
_STEPS_PER_ROUND = 150


@contextmanager
def _draining(config: Config) -> Iterator[None]:
    """A drain in a thread for as long as the block lasts; its failure is the block's."""
    stop, failed = Stop(), list[BaseException]()

    def run() -> None:
        try:
            drain(config, _SOURCE, Until.stopped(), silent, stop)
        except BaseException as error:  # noqa: BLE001  raised again below, in the test's thread
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.request()
        thread.join(60)
    if failed:
        raise failed[0]


def _lake_at_newest_cut(config: Config, database: Database, tables: Tables) -> tuple[Lsn, Mapping[TableName, Rows]]:
    lake = SourceLake.open(config.location, _SOURCE)
    cut = newest_cut(lake)
    assert cut is not None
    assert not cut.held
    actual = {}
    for table in tables:
        columns, attnums = table_columns(database.dsn, table)
        place = lake.url(lake.paths.current(table))
        actual[table] = lake_rows(
            place, cut.tables[table].current_version, columns, attnums, options_of(config.storage)
        )
    return cut.position, actual


def _differences(lake: Mapping[TableName, Rows], source: Mapping[TableName, Rows]) -> dict[str, tuple[Rows, Rows]]:
    assert lake.keys() == source.keys()
    return {str(t): (lake[t] - source[t], source[t] - lake[t]) for t in lake if lake[t] != source[t]}


@pytest.mark.parametrize(
    ("count", "rounds", "lake_place"),
    [
        (2, 1, "folder"),
        pytest.param(5, 4, "folder", marks=pytest.mark.full),
        pytest.param(5, 2, "s3", marks=pytest.mark.full),
        pytest.param(3, 1, "versitygw", marks=pytest.mark.full),
    ],
    indirect=["lake_place"],
)
def test_the_lake_equals_the_source_at_every_position_looked_at(
    database: Database, spark: SparkSession, lake_place: LakeLocation, count: int, rounds: int
) -> None:
    """Bootstrap under load, then cuts at remembered positions in the middle of the stream, then a proof: all equal."""
    tables = (TABLES[0], *random.Random(SEED).sample(TABLES[1:], count - 1))
    config = pipeline_config(database, lake_place)
    workload = RandomWorkload(database.dsn, SEED)
    workload.create_tables()
    publish(database, tables)
    remembered: list[tuple[Lsn, Mapping[TableName, Rows]]] = []
    stop_writing = threading.Event()
    writer = threading.Thread(target=workload.run, args=(stop_writing,))
    writer.start()
    bootstrap(config, _SOURCE, None, silent, Stop())
    with _draining(config):
        stop_writing.wait(0.5)
        stop_writing.set()
        writer.join()
        for _ in range(rounds):
            for _ in range(_STEPS_PER_ROUND):
                workload.step()
            remembered.append((Lsn.parse(current_lsn(database.dsn)), source_rows(database.dsn, tables)))
        # Some of what follows stays beyond the last position, so that it lies inside the landing too.
        for _ in range(20):
            workload.step()
        drain(config, _SOURCE, Until.caught_up(), silent, Stop())
        for position, expected in remembered:
            compact(config, _SOURCE, spark, silent, Stop(), end=position)
            place, actual = _lake_at_newest_cut(config, database, tables)
            assert place == position
            assert _differences(actual, expected) == {}, f"at {position}, LAKEPROOF_SEED={SEED}"
        proof = prove(config, _SOURCE, None, spark, request=TABLES_ALONE)
    workload.close()
    assert {str(t): (p.status, p.reason) for t, p in proof.tables.items()} == {str(t): ("equal", None) for t in tables}
    place, actual = _lake_at_newest_cut(config, database, tables)
    assert place == proof.position
    assert _differences(actual, source_rows(database.dsn, tables)) == {}, f"at the end, LAKEPROOF_SEED={SEED}"


@pytest.mark.full
def test_a_second_snapshot_changes_nothing_but_what_differs(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    """A re-snapshot of chosen tables under load enters by correction: the lake stays equal and history goes on."""
    config = pipeline_config(database, tmp_path / "lake")
    workload = RandomWorkload(database.dsn, SEED + 1)
    workload.create_tables()
    publish(database, TABLES)
    bootstrap(config, _SOURCE, None, silent, Stop())
    with _draining(config):
        for _ in range(_STEPS_PER_ROUND):
            workload.step()
        drain(config, _SOURCE, Until.caught_up(), silent, Stop())
        compact(config, _SOURCE, spark, silent, Stop())
        stop_writing = threading.Event()
        writer = threading.Thread(target=workload.run, args=(stop_writing,))
        writer.start()
        bootstrap(config, _SOURCE, [*TABLES[:4:2], TABLES[3]], silent, Stop())
        stop_writing.wait(0.3)
        stop_writing.set()
        writer.join()
        drain(config, _SOURCE, Until.caught_up(), silent, Stop())
        compact(config, _SOURCE, spark, silent, Stop())
        proof = prove(config, _SOURCE, None, spark, request=TABLES_ALONE)
    workload.close()
    assert {p.status for p in proof.tables.values()} == {"equal"}, f"LAKEPROOF_SEED={SEED}"
    _, actual = _lake_at_newest_cut(config, database, TABLES)
    assert _differences(actual, source_rows(database.dsn, TABLES)) == {}, f"LAKEPROOF_SEED={SEED}"
