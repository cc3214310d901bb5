"""A table's log has the commit of another version, as after a bad restore, or one that names another file than was written.

Each such file can be read by itself. Seen once: a commit that had the text of the one before it was taken for its own, and
rows that it had removed were in the lake again, in a cycle that ended well.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.model import Config
from lakeproof.lake.delta.log.commits import LogGapError
from lakeproof.lake.delta.log.state import read_state
from lakeproof.lake.records.held import HeldCause
from lakeproof.lake.records.store import newest_cut
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.compare import lake_rows, source_rows, table_columns
from tests.support.lake.proof_steps import into_the_lake, table
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres


def _older(log: Path, newest: int) -> None:
    """The newest commit is a copy of the one before it."""
    (log / f"{newest:020d}.json").write_bytes((log / f"{newest - 1:020d}.json").read_bytes())


def _other_path(log: Path, newest: int) -> None:
    """One letter of a removed file's name is another one."""
    file = log / f"{newest:020d}.json"
    text = file.read_text(encoding="utf-8")
    assert '{"remove":{"path":"rows-' in text or '{"remove":{"path":"cycle-' in text
    file.write_text(text.replace('{"remove":{"path":"', '{"remove":{"path":"x', 1), encoding="utf-8")


@pytest.mark.parametrize("damage", [_older, _other_path])
def test_it_is_held_and_no_row_comes_back(
    database: Database, tmp_path: Path, damage: Callable[[Path, int], None]
) -> None:
    """The damaged table is held for its log, and the other one goes on; what the cut has of it is not read wrongly."""
    database.execute(
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)" for name in ("damaged", "good")),
        "INSERT INTO damaged SELECT g, 'v' FROM generate_series(1, 9) g",
        "CREATE PUBLICATION pub FOR TABLE damaged, good",
    )
    config = Config(path=tmp_path / "lakeproof.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source()})
    bootstrap(config, "shop")
    into_the_lake(config)
    for number in (1, 2, 3):
        database.execute(f"DELETE FROM damaged WHERE id = {number}")  # noqa: S608  the test's own
        into_the_lake(config)
    lake = SourceLake.open(config.location, "shop")
    before = newest_cut(lake)
    assert before is not None
    place, version = (
        Path(lake.url(lake.paths.current(table("damaged")))),
        before.tables[table("damaged")].current_version,
    )
    damage(place / "_delta_log", version)
    with pytest.raises(LogGapError, match=f"version {version} of its log removes a file that version {version - 1}"):
        read_state(str(place), version)
    database.execute("DELETE FROM damaged WHERE id = 4", "INSERT INTO good VALUES (1, 'v')")
    into_the_lake(config)
    cut = newest_cut(lake)
    assert cut is not None
    assert {held: why.cause for held, why in cut.held.items()} == {table("damaged"): HeldCause.LOG_DAMAGED}
    columns, numbers = table_columns(database.dsn, table("good"))
    good = lake_rows(
        lake.url(lake.paths.current(table("good"))), cut.tables[table("good")].current_version, columns, numbers
    )
    assert good == source_rows(database.dsn, (table("good"),))[table("good")]
