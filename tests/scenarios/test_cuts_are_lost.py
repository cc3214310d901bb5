"""The documents of a lake's cycles are lost, its tables are there: nobody takes them for left-overs of a killed cycle."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.model import Config
from lakeproof.lake.delta.log.commits import newest_version
from lakeproof.lake.records.held import HeldCause, WayOut
from lakeproof.lake.records.store import newest_cut
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.proof_steps import into_the_lake, table
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres


def test_tables_that_later_cycles_have_written_are_left_alone(database: Database, tmp_path: Path) -> None:
    """A person looks at them: the first cycle of all would otherwise take back what all those cycles have written."""
    database.execute("CREATE TABLE items (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE items")
    config = Config(path=tmp_path / "x.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source()})
    bootstrap(config, "shop")
    for _ in range(3):
        into_the_lake(config)
        database.execute("INSERT INTO items SELECT count(*) FROM items")
    lake = SourceLake.open(config.location, "shop")
    places = [lake.url(lake.paths.history(table("items"))), lake.url(lake.paths.current(table("items")))]
    versions = [newest_version(place) for place in places]
    shutil.rmtree(tmp_path / "lake" / "shop" / "cycles")
    bootstrap(config, "shop", [table("items")])
    into_the_lake(config)
    cut = newest_cut(lake)
    assert cut is not None
    held = cut.held[table("items")]
    assert (held.cause, held.way_out) == (HeldCause.TABLE_NOT_NAMED, WayOut.MOVE_TABLE_THEN_SNAPSHOT)
    assert [newest_version(place) for place in places] == versions
