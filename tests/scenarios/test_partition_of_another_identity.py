"""A partition identified by more columns than its root: its changes arrive with all that the root's key needs.

Which identities fit is decided by `lakeproof.schema.identity_fits`; the words of the catalog's records are in
`tests/edges/schema/test_catalog_differences.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest
from typing_extensions import LiteralString

from lakeproof.catalog.differences import Consequence
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.errors import LakeproofError
from lakeproof.lake.planning.catalog_drift import suspected_changes
from lakeproof.lake.records.held import WayOut, describe_held
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import SOURCE, Drained
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres

ROOT: Sequence[LiteralString] = (
    "CREATE TABLE t (id int PRIMARY KEY, region text NOT NULL, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE high PARTITION OF t FOR VALUES FROM (10) TO (20)",
    "CREATE PUBLICATION shop FOR TABLE t WITH (publish_via_partition_root)",
    "CREATE UNIQUE INDEX low_wide ON low (region, id)",
    "INSERT INTO t SELECT i, 'r' || i, repeat('x', i) FROM generate_series(1, 19) i",
)
WIDER: LiteralString = "ALTER TABLE low REPLICA IDENTITY USING INDEX low_wide"
# Every kind of change: of the key, of what the partition's identity has beside it, of neither, from partition to partition,
# of a key that another row had in the same transaction, and large values that are not sent again.
CHANGES: Sequence[LiteralString] = (
    "UPDATE t SET v = 'new' WHERE id IN (1, 11)",
    "UPDATE t SET region = 'moved' WHERE id IN (2, 12)",
    "DELETE FROM t WHERE id IN (3, 13)",
    "UPDATE t SET id = 13 WHERE id = 4",
    "UPDATE t SET id = 3 WHERE id = 14",
    "DELETE FROM t WHERE id = 5; UPDATE t SET id = 5 WHERE id = 6; UPDATE t SET region = 'r' WHERE id = 5",
    "UPDATE t SET id = 0, region = 'both' WHERE id = 7",
)


@pytest.fixture
def source(database: Database, tmp_path: Path) -> Drained:
    """A root with two partitions, and a landing that begins before its changes."""
    database.execute(*ROOT)
    return Drained(database, tmp_path / "lake")


def test_a_partition_by_more_columns_than_its_root_is_followed(source: Drained) -> None:
    """The identity is switched between two readings, among changes of rows; nothing calls for a copy."""
    source.database.execute("CREATE TABLE kept AS SELECT * FROM t", "DELETE FROM t")
    source.begin()
    source.database.execute("INSERT INTO t SELECT * FROM kept", *CHANGES[:2], WIDER, *CHANGES)
    source.drain()
    source.database.execute("UPDATE t SET region = 'late', id = 4 WHERE id = 8")
    source.database.execute("UPDATE t SET region = region || v, v = NULL", "ALTER TABLE low REPLICA IDENTITY DEFAULT")
    source.drain()
    source.database.execute("UPDATE t SET region = 'last' WHERE id < 3")
    source.drain()
    consequences = {
        (change.table.name, change.consequence)
        for manifest in source.chain().manifests(1)
        for change in (() if manifest.catalog is None else manifest.catalog.changes)
    }
    assert consequences == {("t", Consequence.IGNORE)}
    t = TableName("public", "t")
    assert source.folded()[t] == source.source_rows(t)


@pytest.mark.since(15)
def test_the_server_itself_refuses_changes_that_a_column_list_does_not_cover(database: Database) -> None:
    """So such a partition is an error of `check`, not one of the stream (`test_source_checks.py`)."""
    database.execute(*ROOT, WIDER, "ALTER PUBLICATION shop SET TABLE t (id, v)", "DELETE FROM t WHERE id = 11")
    with pytest.raises(psycopg.Error, match="cannot update table"):
        database.execute("UPDATE t SET v = NULL WHERE id = 1")


def test_a_copy_is_refused_with_what_has_to_be_done_first(database: Database, source: Drained) -> None:
    """The way out of the held table says the same, and the copy is made once it was done."""
    t = TableName("public", "t")
    bootstrap(source.config(), SOURCE)
    database.execute("ALTER TABLE low REPLICA IDENTITY NOTHING")
    source.drain()
    (change,) = suspected_changes(source.chain(), source.chain().head.end_lsn)
    held = describe_held(change.held(source.chain().end), SOURCE, t)
    assert held.way_out is WayOut.SAME_IDENTITY_THEN_SNAPSHOT
    with pytest.raises(LakeproofError, match=r"ALTER TABLE public\.low REPLICA IDENTITY"):
        bootstrap(source.config(), SOURCE, [t])
    database.execute("ALTER TABLE low REPLICA IDENTITY FULL")
    assert "then run `lakeproof bootstrap shop --tables public.t`" in held.remedy
    assert set(bootstrap(source.config(), SOURCE, [t]).tables) == {t}
