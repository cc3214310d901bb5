"""Every store alike: copy, cycles, maintenance, proof and reading without a JVM, in a folder, on S3, Google's and Azure's.

Of each an emulator, or a server of ours that speaks as it does. What a store promises is in
`tests/edges/storage/test_store.py`, what only Spark does on S3 in `test_whole_pipeline_on_s3.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from psycopg.sql import SQL

import lakeproof
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.commands.maintain import MaintenanceRequest, lake_sizes, maintain
from lakeproof.commands.prove import prove
from lakeproof.commands.status import status
from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config
from lakeproof.config.section.upkeep import RetentionConfig
from lakeproof.drain.until import Until
from lakeproof.errors import TransientError
from lakeproof.events import Stop, silent
from lakeproof.lake.delta.committer import LoggedOperation, PendingCommit
from lakeproof.lake.delta.log import state as state_module
from lakeproof.lake.delta.log.commits import commit_name, log_files, newest_version, read_commit
from lakeproof.lake.delta.log.protocol import CHECKPOINT_INTERVAL
from lakeproof.lake.delta.log.state import read_state
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import TableName
from lakeproof.proof.run import ProofRequest
from lakeproof.storage.folder import Folder
from lakeproof.storage.source_lake import SourceLake
from tests.support.ingest.fix_drain import SOURCE, make_config
from tests.support.lake.compare import Rows, lake_rows, source_rows, table_columns
from tests.support.lake.maintain_steps import MUCH_LATER
from tests.support.servers.fix_postgres import Database
from tests.support.spark.fix_lake import options_of
from tests.support.stores.fix_object_store import storage

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
TABLES = ITEMS, NOTES = tuple(TableName("public", name) for name in ("items", "notes"))
STORES = [
    "folder",
    "moto",
    *(pytest.param(kind, marks=pytest.mark.full) for kind in ("google", "versitygw", "azurite")),
]
WRITERS = 4


@dataclass(frozen=True)
class Place:
    """A new lake's place, and the options with which delta-rs reads it."""

    location: LakeLocation
    options: Mapping[str, str] | None


@pytest.fixture
def place(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Place:
    """A place in the store that the test's parameter names."""
    if kind == "folder":
        return Place(LakeLocation(str(tmp_path / "lake")), None)
    if kind in ("google", "azurite"):
        cloud = request.getfixturevalue("cloud")
        return Place(cloud.location(), cloud.reader_options)
    server, bucket = request.getfixturevalue("s3_server"), request.getfixturevalue("bucket")
    location = LakeLocation(f"s3://{bucket}/data/lake", storage(server.endpoint))
    return Place(location, options_of(location.storage))


def _no_jvm() -> Any:
    """Fail: no store needs Spark for ordinary tables."""
    pytest.fail("a JVM was asked for")


SPARK = SparkOnDemand(_no_jvm)


def _lake_of(database: Database, place: Place) -> Config:
    """A source of two tables whose copy is in the lake; files are put together as soon as there are two."""
    database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, price numeric(10, 2), at timestamptz DEFAULT now())",
        "CREATE TABLE notes (id bigint PRIMARY KEY, body text, seen bool)",
        "ALTER TABLE notes ALTER body SET STORAGE EXTERNAL",
        "INSERT INTO items SELECT n, n * 1.5 FROM generate_series(1, 2000) n",
        "INSERT INTO notes SELECT n, repeat(md5(n::text), 200), false FROM generate_series(1, 20) n",
        "CREATE PUBLICATION shop FOR ALL TABLES",
    )
    config = make_config(database.dsn, place.location, database.name)
    kept = RetentionConfig(cuts_s=0, landing_s=0, small_files=2)
    source = config.sources[SOURCE].model_copy(update={"retention": kept})
    config = config.model_copy(update={"sources": {SOURCE: source}})
    bootstrap(config, SOURCE)
    return config


def _change(database: Database, first: int) -> None:
    statements = (
        "INSERT INTO items SELECT n, 7 FROM generate_series({first}, {first} + 999) n",
        "UPDATE items SET price = price + 1 WHERE id % 97 = {first} % 97",
        "UPDATE items SET id = -id WHERE id = {first} + 3",
        "DELETE FROM items WHERE id % 89 = {first} % 89",
        "UPDATE notes SET seen = true WHERE id % 3 = {first} % 3",
        "DELETE FROM notes WHERE id = {first} / 1000",
    )
    database.execute(*(SQL(statement).format(first=first) for statement in statements))


def _compact(config: Config) -> Cut:
    drain(config, SOURCE, Until.caught_up())
    compact(config, SOURCE, SPARK, silent, Stop())
    cut = newest_cut(SourceLake.open(config.location, SOURCE))
    assert cut is not None
    assert not cut.held
    return cut


def _check(config: Config, database: Database, place: Place) -> None:
    """The newest cut, read by delta-rs and by us, has the source's rows."""
    lake = SourceLake.open(config.location, SOURCE)
    cut = newest_cut(lake)
    assert cut is not None
    expected, options = source_rows(database.dsn, TABLES), None if place.options is None else dict(place.options)
    opened = lakeproof.read(config)
    for table in TABLES:
        url, version = lake.url(lake.paths.current(table)), cut.tables[table].current_version
        actual: Rows = lake_rows(url, version, *table_columns(database.dsn, table), options)
        assert actual == expected[table]
        assert opened.table(SOURCE, str(table)).arrow().num_rows == expected[table].total()


@pytest.mark.parametrize("kind", STORES)
def test_the_lake_is_the_source_on_every_store(database: Database, place: Place, kind: str) -> None:
    """After the copy, after cycles, and after maintenance; proven with its history, all without a JVM."""
    del kind
    config = _lake_of(database, place)
    for first in (3000, 5000, 7000):
        _change(database, first)
        _compact(config)
        _check(config, database, place)
    done = maintain(config, SOURCE, SPARK, silent, MaintenanceRequest(now=MUCH_LATER))
    assert set(done.optimized) == set(TABLES)
    assert done.freed["tables"].files > 0
    assert done.damaged == {}
    _check(config, database, place)
    _change(database, 9000)
    _compact(config)
    _check(config, database, place)
    proof = prove(config, SOURCE, None, SPARK, request=ProofRequest(history=True))
    assert {table: p.status for table, p in proof.tables.items()} == dict.fromkeys(TABLES, "equal")
    assert proof.equal
    assert status(config)
    assert lake_sizes(config, SOURCE, plan=True).damaged == {}


@pytest.mark.parametrize("kind", STORES)
def test_of_writers_of_one_version_one_wins(
    database: Database, place: Place, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four commit to one version at the same moment, until there is a checkpoint: one has made it, the others nothing.

    The checkpoint has what the commits had, for us and for delta-rs.
    """
    del kind
    config = _lake_of(database, place)
    lake, version = SourceLake.open(config.location, SOURCE), _compact(config).tables[ITEMS].current_version
    path = lake.url(lake.paths.current(ITEMS))
    for number in range(version, CHECKPOINT_INTERVAL + 2):
        state, together, won = read_state(path, number), threading.Barrier(WRITERS), list[int]()

        def write(writer: int) -> None:
            change = PendingCommit(path, state)  # noqa: B023  the threads end in their round
            change.set_metadata({**state.metadata, "description": f"writer {writer}"})  # noqa: B023  as above
            together.wait()  # noqa: B023  as above
            try:
                change.commit(None, LoggedOperation("SET TBLPROPERTIES", {}, {}, f"{writer}"))
                won.append(writer)  # noqa: B023  as above
            except TransientError:
                pass

        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert newest_version(path) == number + 1
        commit = read_commit(path, number + 1)
        assert commit is not None
        assert [str(writer) for writer in won] == [commit.user_metadata]
    before = read_state(path, CHECKPOINT_INTERVAL + 2)
    assert any(name.endswith(".checkpoint.parquet") for name in log_files(Folder.at(path)))
    for number in range(CHECKPOINT_INTERVAL):
        lake.store.delete(f"{lake.paths.current(ITEMS)}/{commit_name(number)}")
    monkeypatch.setattr(state_module, "_kept", state_module._Kept())  # inside: another process has kept nothing
    after = read_state(path, CHECKPOINT_INTERVAL + 2)
    assert (after.files.keys(), after.metadata) == (before.files.keys(), before.metadata)
    options = None if place.options is None else dict(place.options)
    columns = table_columns(database.dsn, ITEMS)
    assert lake_rows(path, after.version, *columns, options) == source_rows(database.dsn, (ITEMS,))[ITEMS]
