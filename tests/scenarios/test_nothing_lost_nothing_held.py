"""Alterations that take no row and change no value: the table is followed, though its catalog looks like worse.

Seen once: an empty partition, a TRUNCATE beside a dropped sequence and a domain altered to its own base type held their
tables until a copy. The words of the catalog's records are in `tests/edges/schema/test_catalog_differences.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from typing_extensions import LiteralString

from lakeproof.catalog.differences import Consequence
from lakeproof.lake.planning.schema_change import compare_schemas, why_not_in_place
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion
from tests.support.ingest.fix_drain import Drained
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres
T = TableName("public", "t")
ROWS: LiteralString = "INSERT INTO t (id, v) SELECT i, i FROM generate_series(1, 9) i"


@pytest.fixture
def source(database: Database, tmp_path: Path) -> Drained:
    """A database without a publication."""
    return Drained(database, tmp_path / "lake")


def _ends_equal(source: Drained, setup: Sequence[LiteralString], *altered: Sequence[LiteralString]) -> None:
    """Land rows before, between and after the alterations, with a look at the catalog after each: nothing is held."""
    source.database.execute(*setup)
    source.begin()
    source.database.execute(ROWS)
    source.drain()
    for statements in altered:
        source.database.execute(*statements)
        source.drain()
    chain = source.chain()
    versions: list[SchemaVersion] = []
    for manifest in chain.manifests(1):
        changes = () if manifest.catalog is None else manifest.catalog.changes
        assert {c.consequence for c in changes} <= {Consequence.IGNORE, Consequence.APPLY}, changes
        versions += [entry.version for entry in manifest.schemas if entry.version.table == T]
    assert {why_not_in_place(compare_schemas(versions[0], version)) for version in versions} == {None}
    assert source.folded()[T] == source.source_rows(T)


ROOT: Sequence[LiteralString] = (
    "CREATE TABLE t (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)",
    "CREATE TABLE p1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
    "CREATE PUBLICATION shop FOR TABLE t WITH (publish_via_partition_root)",
)


def test_a_partition_attached_without_a_row_is_followed(source: Drained) -> None:
    """Its columns have other numbers than the root's; rows come into it and leave it again."""
    _ends_equal(
        source,
        ROOT,
        (
            "CREATE TABLE p2 (v int, gone text, id int NOT NULL)",
            "ALTER TABLE p2 DROP gone",
            "ALTER TABLE t ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20)",
        ),
        ("UPDATE t SET id = id + 9 WHERE id < 8", "INSERT INTO t VALUES (19, 1)", "DELETE FROM t WHERE id = 12"),
        ("UPDATE t SET id = 1 WHERE id = 11", "UPDATE t SET v = id"),
    )


def test_a_truncate_beside_an_alter_that_rewrites_nothing_is_followed(source: Drained) -> None:
    """A default goes with its sequence: the column's line in the catalog is another one, and so is the table's file."""
    _ends_equal(
        source,
        (
            "CREATE SEQUENCE counter",
            "CREATE TABLE t (id int PRIMARY KEY, v int DEFAULT nextval('counter'))",
            "CREATE PUBLICATION shop FOR TABLE t",
        ),
        ("TRUNCATE t", ROWS, "DROP SEQUENCE counter CASCADE", "UPDATE t SET v = -v WHERE id < 4"),
        ("INSERT INTO t VALUES (50, 1)",),
    )


def test_a_domain_altered_to_what_it_is_of_is_followed(source: Drained) -> None:
    """One that is altered to a domain of its own type is, too."""
    _ends_equal(
        source,
        (
            "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
            "CREATE DOMAIN whole AS int",
            "CREATE TABLE t (id int PRIMARY KEY, v positive)",
            "CREATE PUBLICATION shop FOR TABLE t",
        ),
        ("ALTER TABLE t ALTER v TYPE int", "UPDATE t SET v = -v WHERE id < 4"),
        ("ALTER TABLE t ALTER v TYPE whole", "UPDATE t SET v = 7 WHERE id = 4"),
    )
