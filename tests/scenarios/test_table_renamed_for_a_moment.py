"""Tables have another name for a moment: rows that came under it are not passed over, though the catalog looks as before.

The lake knows tables by their names. Between two readings of the catalog a name may change and change back; the stream says
with each row which table it is of.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.lake.records.held import HeldCause, WayOut
from lakeproof.lake.records.store import newest_cut
from lakeproof.proof.run import ProofRequest
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.proof_steps import WITHOUT, into_the_lake, table
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres
_TABLES = "abcdefg"


@pytest.fixture
def config(database: Database, tmp_path: Path) -> Config:
    """Tables of one shape, in the lake and proven."""
    database.execute("CREATE SCHEMA other", "CREATE PUBLICATION pub FOR ALL TABLES")
    for name in _TABLES:
        database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, v text)",
            f"INSERT INTO {name} SELECT i, 'v' FROM generate_series(1, 50) i",  # noqa: S608  the test's own
        )
    config = Config(path=tmp_path / "x.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source()})
    bootstrap(config, "shop")
    into_the_lake(config)
    assert {p.status for p in prove(config, "shop", None, WITHOUT).tables.values()} == {"equal"}
    return config


def test_rows_under_another_name_hold_their_table(database: Database, config: Config) -> None:
    """By single statements, within a transaction, moved to a schema, names exchanged: neither lost nor proven equal."""
    database.execute(
        *("ALTER TABLE a RENAME TO x", "UPDATE x SET v = 'a' WHERE id = 1", "ALTER TABLE x RENAME TO a"),
        *("UPDATE a SET v = 'later' WHERE id = 2", "UPDATE g SET v = 'g' WHERE id = 1"),
        *("ALTER TABLE b SET SCHEMA other", "DELETE FROM other.b", "ALTER TABLE other.b SET SCHEMA public"),
        *("ALTER TABLE c RENAME TO x", "TRUNCATE x", "ALTER TABLE x RENAME TO c"),
        # No row came under its other name.
        *("ALTER TABLE d RENAME TO x", "ALTER TABLE x RENAME TO d", "UPDATE d SET v = 'd' WHERE id = 1"),
    )
    with database.connect() as connection, connection.transaction():
        # Each row of one name is last announced as the lake has the name.
        for statement in (
            *("ALTER TABLE e RENAME TO x", "ALTER TABLE f RENAME TO e", "UPDATE e SET v = 'f' WHERE id = 1"),
            *("ALTER TABLE e RENAME TO f", "ALTER TABLE x RENAME TO e", "UPDATE e SET v = 'e' WHERE id = 2"),
        ):
            connection.execute(statement)
    into_the_lake(config)
    cut = newest_cut(SourceLake.open(config.location, "shop"))
    assert cut is not None
    assert cut.held.keys() == {table(name) for name in "abcef"}
    assert "renamed to public.x" in cut.held[table("a")].reason
    proof = prove(config, "shop", None, WITHOUT, request=ProofRequest(changed=True))
    assert {name.name: p.status for name, p in proof.tables.items()} == {
        name: "equal" if name in "dg" else "held" for name in _TABLES
    }


def test_a_table_that_was_renamed_for_good_is_not_to_be_copied_by_its_old_name(
    database: Database, config: Config
) -> None:
    """No copy has it, until another table has its name; one that has its name again by now is to be copied."""
    database.execute("ALTER TABLE b RENAME TO y", "INSERT INTO y VALUES (0)", "ALTER TABLE y RENAME TO b")
    database.execute("ALTER TABLE a RENAME TO x", "INSERT INTO x VALUES (0)")
    into_the_lake(config)
    cut = newest_cut(SourceLake.open(config.location, "shop"))
    assert cut is not None
    assert {name.name: held.cause for name, held in cut.held.items()} == dict.fromkeys("ab", HeldCause.SCHEMA_CHANGE)
    expected = {"a": WayOut.PUBLISH_THEN_SNAPSHOT, "b": WayOut.SNAPSHOT}
    assert {name.name: held.way_out for name, held in cut.held.items()} == expected
