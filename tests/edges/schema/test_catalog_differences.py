"""The differences that an ALTER makes in the catalog, as the chain records them: a real server, no row changed.

How a record is read by the lake is in `test_catalog_drift.py`; random ALTERs between random changes in
`tests/properties/schema/test_catalog_random.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from psycopg.sql import SQL
from typing_extensions import LiteralString

from lakeproof.catalog.differences import Consequence, Difference, TableDifferences
from lakeproof.landing.catalog_history import newest_catalog
from lakeproof.landing.segments.manifest import Manifest, ManifestKind
from lakeproof.lsn import Lsn
from tests.support.ingest.fix_drain import Drained
from tests.support.servers.fix_postgres import Database

PAGE = Path(__file__).parents[3] / "docs" / "schema-changes.md"
TABLE: LiteralString = "CREATE TABLE t (id int PRIMARY KEY, v text, n numeric(8,2), o int)"
ROWS: LiteralString = "INSERT INTO t SELECT i, 'x', i, i FROM generate_series(1, 100) i"
ROOT: LiteralString = "CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)"
LEAF: LiteralString = "CREATE TABLE p1 PARTITION OF t FOR VALUES FROM (0) TO (10)"
LEAF2: LiteralString = "CREATE TABLE p2 PARTITION OF t FOR VALUES FROM (10) TO (20)"
FOR_T: LiteralString = "CREATE PUBLICATION shop FOR TABLE t"
VIA_ROOT: LiteralString = "CREATE PUBLICATION shop FOR TABLE t WITH (publish_via_partition_root)"
TYPES: Sequence[LiteralString] = (
    "CREATE TYPE mood AS ENUM ('sad', 'glad')",
    "CREATE TYPE pair AS (x int, m mood)",
    "CREATE TABLE t (id int PRIMARY KEY, m mood[], p pair)",
    FOR_T,
)
PLAIN: Sequence[LiteralString] = (TABLE, ROWS, FOR_T)
SEQUENCE: Sequence[LiteralString] = (
    TABLE, "CREATE SEQUENCE counter", "ALTER TABLE t ALTER o SET DEFAULT nextval('counter')", ROWS, FOR_T,
)  # fmt: skip
STORED: Sequence[LiteralString] = (*PLAIN, "ALTER TABLE t ADD w int DEFAULT 7")
FULL: Sequence[LiteralString] = (TABLE, ROWS, FOR_T, "ALTER TABLE t REPLICA IDENTITY FULL")
GENERATED: Sequence[LiteralString] = (
    "CREATE TABLE t (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) STORED)",
    FOR_T,
)
OTHER_COLUMNS: Sequence[LiteralString] = (
    "UPDATE p1 SET v = id::text",
    "ALTER TABLE p1 ALTER v SET NOT NULL",
    "CREATE UNIQUE INDEX others ON p1 (v)",
    "ALTER TABLE p1 REPLICA IDENTITY USING INDEX others",
)
# The root by its index of a code, and so its partition, which has a primary key beside it.
CODED: Sequence[LiteralString] = (
    "CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL) PARTITION BY RANGE (id)",
    "CREATE UNIQUE INDEX t_code ON t (code, id)",
    "CREATE TABLE p1 PARTITION OF t DEFAULT",
    "CREATE UNIQUE INDEX p1_code ON p1 (id, code)",
    "ALTER TABLE p1 REPLICA IDENTITY USING INDEX p1_code",
    "ALTER TABLE t REPLICA IDENTITY USING INDEX t_code",
    VIA_ROOT,
)
OTHER_NUMBERS: Sequence[LiteralString] = (
    "CREATE TABLE p3 (v text, gone int, id int NOT NULL)",
    "ALTER TABLE p3 DROP gone",
)
ATTACH: LiteralString = "ALTER TABLE t ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30)"
IN_ONE_GO: LiteralString = """BEGIN; CREATE TABLE p3 (id int PRIMARY KEY, v text);
ALTER TABLE t ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30); COMMIT"""
TREE: Sequence[LiteralString] = (ROOT, LEAF, LEAF2, "INSERT INTO t SELECT i FROM generate_series(1, 15) i", VIA_ROOT)


@dataclass(frozen=True)
class Case:
    """The tables at first, the ALTER, and the words that the chain then has about `t`."""

    name: str
    setup: Sequence[LiteralString]
    altered: Sequence[LiteralString]
    words: str


REWRITE: Sequence[LiteralString] = ("ALTER TABLE t ALTER o TYPE int USING o + 1",)
CASES = [
    Case("rewritten_under_the_same_type", PLAIN, REWRITE, "column altered, rewritten"),
    Case("rewritten_to_another_type", PLAIN, ["ALTER TABLE t ALTER o TYPE text"],
         "column altered, column type, file"),
    Case("rewritten_to_a_wider_type", PLAIN, ["ALTER TABLE t ALTER o TYPE bigint"],
         "column altered, column widened, file"),
    Case("widened_and_rewritten", PLAIN, ["ALTER TABLE t ALTER o TYPE bigint, ALTER v TYPE text USING v || v"],
         "column altered, column widened, rewritten"),
    Case("widened_beside_a_stored_default", STORED, ["ALTER TABLE t ALTER o TYPE bigint"],
         "column altered, column widened, file"),
    Case("stored_default_rewritten", STORED, ["ALTER TABLE t ALTER w TYPE int USING w + 1"],
         "column altered, rewritten"),
    Case("stored_default_rewritten_beside_a_widening", STORED,
         ["ALTER TABLE t ALTER w TYPE int USING w + 1, ALTER o TYPE bigint"],
         "column altered, column widened, rewritten"),
    Case("stored_default_rewritten_before_a_widening", STORED,
         ["ALTER TABLE t ALTER w TYPE int USING w + 1", "ALTER TABLE t ALTER o TYPE bigint"],
         "column altered, column widened, rewritten"),
    Case("vacuum_full", PLAIN, ["VACUUM FULL t"], "file"),
    Case("vacuum_full_of_a_stored_default", STORED, ["VACUUM FULL t"], "column altered, file"),
    Case("cluster", PLAIN, ["CLUSTER t USING t_pkey"], "file"),
    Case("truncate", PLAIN, ["TRUNCATE t"], "file"),
    Case("truncated_beside_an_alter", SEQUENCE,
         ["TRUNCATE t", ROWS, "DROP SEQUENCE counter CASCADE", "UPDATE t SET o = 1"], "column altered, file"),
    Case("truncated_after_an_alter", PLAIN, [*REWRITE, "UPDATE t SET o = 1", "TRUNCATE t", ROWS], "column altered, file"),
    Case("rewritten_after_a_truncate", PLAIN, ["TRUNCATE t", ROWS, *REWRITE], "column altered, rewritten"),
    Case("rewritten_in_the_transaction_of_a_truncate", PLAIN,
         ["BEGIN; TRUNCATE t; INSERT INTO t VALUES (1, 'x', 1, 1); ALTER TABLE t ALTER o TYPE int USING o + 1; COMMIT",
          "ALTER TABLE t ALTER o SET NOT NULL"], "column altered, rewritten"),
    Case("vacuum", PLAIN, ["VACUUM ANALYZE t"], ""),
    Case("an_index_and_a_grant", PLAIN, ["CREATE INDEX ON t (o)", "GRANT SELECT ON t TO public"], ""),
    Case("statistics", PLAIN, ["ALTER TABLE t ALTER o SET STATISTICS 10"], "column altered"),
    Case("not_null", PLAIN, ["ALTER TABLE t ALTER o SET NOT NULL"], "column altered"),
    Case("added", PLAIN, ["ALTER TABLE t ADD w int"], "column added"),
    Case("added_with_a_default", PLAIN, ["ALTER TABLE t ADD w int DEFAULT 7"], "column added"),
    Case("added_with_a_rewrite", PLAIN, ["ALTER TABLE t ADD w float DEFAULT random()"], "column added, file"),
    Case("dropped", PLAIN, ["ALTER TABLE t DROP o"], "column dropped"),
    Case("renamed_column", PLAIN, ["ALTER TABLE t RENAME o TO oo"], "column altered, column renamed"),
    Case("of_a_domain", (*PLAIN[:2], "CREATE DOMAIN positive AS int CHECK (VALUE > 0)", "CREATE DOMAIN words AS text",
         "ALTER TABLE t ALTER o TYPE positive", FOR_T), ["ALTER TABLE t ALTER o TYPE int, ALTER v TYPE words"],
         "column altered, column width"),
    Case("of_a_domain_and_rewritten", (*PLAIN, "CREATE DOMAIN whole AS int"),
         ["ALTER TABLE t ALTER o TYPE whole USING o + 1"], "column altered, column width, rewritten"),
    Case("of_a_wider_domain", (*PLAIN, "CREATE DOMAIN more AS numeric(10,2)"), ["ALTER TABLE t ALTER n TYPE more"],
         "column altered, column type"),
    Case("widened", PLAIN, ["ALTER TABLE t ALTER n TYPE numeric(10,2)"], "column altered, column width"),
    Case("made_again", PLAIN, ["ALTER TABLE t DROP o, ADD o int"], "column recreated"),
    Case("renamed_table", PLAIN, ["ALTER TABLE t RENAME TO t2"], "renamed"),
    Case("moved", PLAIN, ["CREATE SCHEMA other", "ALTER TABLE t SET SCHEMA other"], "renamed"),
    Case("dropped_table", PLAIN, ["DROP TABLE t"], "dropped"),
    Case("dropped_and_made_again", PLAIN, ["DROP TABLE t", TABLE, "ALTER PUBLICATION shop ADD TABLE t"],
         "dropped; entered"),
    Case("left", PLAIN, ["ALTER PUBLICATION shop DROP TABLE t"], "left"),
    Case("left_and_came_back", PLAIN, ["ALTER PUBLICATION shop DROP TABLE t", "ALTER PUBLICATION shop ADD TABLE t"],
         "published again"),
    Case("publication_made_again", PLAIN, ["DROP PUBLICATION shop", FOR_T], "published again"),
    Case("filter", PLAIN, ["ALTER PUBLICATION shop SET TABLE t WHERE (id > 5)"], "row filter"),
    Case("filter_again", (TABLE, "CREATE PUBLICATION shop FOR TABLE t WHERE (id > 5)"),
         ["ALTER PUBLICATION shop SET TABLE t WHERE (id > 6)"], "row filter"),
    Case("the_same_filter", (TABLE, "CREATE PUBLICATION shop FOR TABLE t WHERE (id > 5)"),
         ["ALTER PUBLICATION shop SET TABLE t WHERE (id > 5)"], ""),
    Case("column_list", PLAIN, ["ALTER PUBLICATION shop SET TABLE t (id, v)"], "column dropped, column list"),
    Case("generated_no_more", GENERATED, ["ALTER TABLE t ALTER g DROP EXPRESSION"], "column sent"),
    Case("operations", PLAIN, ["ALTER PUBLICATION shop SET (publish = 'insert')"], "operations"),
    Case("operations_and_back", PLAIN, ["ALTER PUBLICATION shop SET (publish = 'insert')",
         "ALTER PUBLICATION shop SET (publish = 'insert, update, delete, truncate')"], "publication altered"),
    Case("another_owner", PLAIN, ["ALTER PUBLICATION shop OWNER TO pg_database_owner"], ""),
    Case("another_form_of_roots", PLAIN, ["ALTER PUBLICATION shop SET (publish_via_partition_root = true)"], ""),
    Case("another_table", PLAIN, ["CREATE TABLE u (id int PRIMARY KEY)", "ALTER PUBLICATION shop ADD TABLE u"], ""),
    Case("identity", PLAIN, ["ALTER TABLE t REPLICA IDENTITY FULL"], "identity"),
    Case("key_dropped", PLAIN, ["ALTER TABLE t DROP CONSTRAINT t_pkey"], "identity"),
    Case("key_dropped_under_full", FULL, ["ALTER TABLE t DROP CONSTRAINT t_pkey"], "key under full"),
    Case("label_added", TYPES, ["ALTER TYPE mood ADD VALUE 'mad' BEFORE 'sad'"], "enum label added"),
    Case("label_renamed", TYPES, ["ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'"], "enum label changed"),
    Case("composite_grown", TYPES, ["ALTER TYPE pair ADD ATTRIBUTE y int"], "composite altered"),
    Case("composite_renamed", TYPES, ["ALTER TYPE pair RENAME ATTRIBUTE x TO y"], "attribute renamed"),
    Case("a_type_of_nobody", TYPES, ["CREATE TYPE other AS ENUM ('a')", "ALTER TYPE other RENAME VALUE 'a' TO 'b'"], ""),
    Case("partition_truncated", TREE, ["TRUNCATE p1"], "partition file"),
    Case("partition_vacuumed", TREE, ["VACUUM FULL p1"], "partition file"),
    Case("root_truncated", TREE, ["TRUNCATE t"], "root truncated"),
    Case("root_truncated_before_a_partition", TREE, ["TRUNCATE t", "INSERT INTO t VALUES (1)", "TRUNCATE p1"],
         "partition file"),
    Case("partition_made", TREE, ["CREATE TABLE p3 PARTITION OF t FOR VALUES FROM (20) TO (30)"], "partition created"),
    Case("partition_of_a_partition", TREE,
         ["CREATE TABLE p3 PARTITION OF t FOR VALUES FROM (20) TO (30) PARTITION BY RANGE (id)",
          "CREATE TABLE p4 PARTITION OF p3 DEFAULT"], "partition created"),
    Case("partition_attached", TREE, ["CREATE TABLE p3 (id int PRIMARY KEY, v text)", "INSERT INTO p3 VALUES (21)",
         "ALTER TABLE t ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30)"], "partition attached"),
    Case("empty_partition_attached", TREE, [*OTHER_NUMBERS, ATTACH], "partition created"),
    Case("empty_partition_attached_in_the_transaction_that_made_it", TREE,
         [IN_ONE_GO], "partition attached"),
    Case("partition_emptied_and_attached", TREE,
         [*OTHER_NUMBERS, "INSERT INTO p3 VALUES ('x', 21)", "DELETE FROM p3", ATTACH], "partition attached"),
    Case("partition_truncated_and_attached", TREE,
         [*OTHER_NUMBERS, "INSERT INTO p3 VALUES ('x', 21)", "TRUNCATE p3", ATTACH], "partition attached"),
    Case("empty_partition_attached_beside_one_with_rows", TREE,
         [*OTHER_NUMBERS, ATTACH, "CREATE TABLE p4 (id int PRIMARY KEY, v text)", "INSERT INTO p4 VALUES (31)",
          "ALTER TABLE t ATTACH PARTITION p4 FOR VALUES FROM (30) TO (40)"], "partition attached"),
    Case("columns_made_again_beside_an_empty_partition", TREE,
         ["ALTER TABLE t DROP v", "ALTER TABLE t ADD v text", *OTHER_NUMBERS, ATTACH],
         "column recreated, partition created"),
    Case("became_a_partition", ("CREATE TABLE t (id int PRIMARY KEY)",
         "CREATE TABLE r (id int PRIMARY KEY) PARTITION BY RANGE (id)",
         "CREATE PUBLICATION shop FOR TABLE t, r WITH (publish_via_partition_root)"),
         ["ALTER TABLE r ATTACH PARTITION t DEFAULT"], "became a partition"),
    Case("partition_attached_at_once", TREE,
         ["CREATE TABLE p3 (id int PRIMARY KEY, v text); ALTER TABLE t ATTACH PARTITION p3 DEFAULT"],
         "partition attached"),
    Case("partition_detached", TREE, ["ALTER TABLE t DETACH PARTITION p1"], "partition detached"),
    Case("partition_dropped", TREE, ["DROP TABLE p1"], "partition detached"),
    Case("partition_detached_and_attached", TREE, ["ALTER TABLE t DETACH PARTITION p1",
         "ALTER TABLE t ATTACH PARTITION p1 FOR VALUES FROM (0) TO (10)"], "partition attached"),
    Case("partition_identity", TREE, ["ALTER TABLE p1 REPLICA IDENTITY NOTHING"], "partition identity"),
    Case("partition_identity_full", TREE, ["ALTER TABLE p1 REPLICA IDENTITY FULL"], "partition identity fits"),
    Case("partition_identity_by_another_index_of_the_same_columns", TREE,
         ["CREATE UNIQUE INDEX again ON p1 (id)", "ALTER TABLE p1 REPLICA IDENTITY USING INDEX again"],
         "partition identity fits"),
    Case("partition_identity_of_other_columns", TREE, OTHER_COLUMNS, "partition identity"),
    Case("partition_identity_mended", (*TREE, *OTHER_COLUMNS), ["ALTER TABLE p1 REPLICA IDENTITY DEFAULT"],
         "partition identity fits"),
    Case("partition_identity_of_other_columns_under_the_same_letter", CODED,
         ["ALTER TABLE p1 REPLICA IDENTITY USING INDEX p1_pkey"], "partition identity"),
    Case("partition_identity_of_more_columns", (*TREE, "UPDATE t SET v = id", "ALTER TABLE t ALTER v SET NOT NULL",
         "CREATE UNIQUE INDEX more ON p1 (v, id)"), ["ALTER TABLE p1 REPLICA IDENTITY USING INDEX more"],
         "partition identity fits"),
    Case("root_identity_of_fewer_columns", CODED, ["ALTER TABLE ONLY t REPLICA IDENTITY DEFAULT"], "identity"),
    Case("root_identity_of_other_columns", (*CODED, "ALTER TABLE ONLY t REPLICA IDENTITY DEFAULT",
         "ALTER TABLE p1 REPLICA IDENTITY DEFAULT"), ["ALTER TABLE ONLY t REPLICA IDENTITY USING INDEX t_code"],
         "identity, partition identity"),
    Case("root_identity_full", TREE, ["ALTER TABLE ONLY t REPLICA IDENTITY FULL"], "identity, partition identity"),
    Case("partition_made_under_a_root_that_is_full",
         (*TREE, *("ALTER TABLE p1 REPLICA IDENTITY FULL", "ALTER TABLE p2 REPLICA IDENTITY FULL"),
          "ALTER TABLE t REPLICA IDENTITY FULL"),
         ["CREATE TABLE p3 PARTITION OF t FOR VALUES FROM (20) TO (30)"], "partition created, partition identity"),
    Case("identity_column_renamed", TREE, ["ALTER TABLE t RENAME id TO number"], "column altered, column renamed"),
    Case("root_rewritten", TREE, ["ALTER TABLE t ALTER v TYPE text USING v || '!'"], "column altered, rewritten"),
    Case("via_root_no_more", TREE, ["ALTER PUBLICATION shop SET (publish_via_partition_root = false)"], "left"),
]  # fmt: skip


@pytest.fixture
def source(database: Database, tmp_path: Path) -> Drained:
    """A database without a publication; `begin` after there is one."""
    return Drained(database, tmp_path / "lake")


def records(source: Drained) -> list[Manifest]:
    """The chain's links with a reading, without the head."""
    return [m for m in source.chain().manifests(1) if m.catalog is not None]


def changes(source: Drained) -> list[TableDifferences]:
    """The words of all records."""
    return [change for m in records(source) if m.catalog is not None for change in m.catalog.changes]


def words(actual: Sequence[TableDifferences], name: str = "t") -> str:
    """Return the differences of one table."""
    return "; ".join(", ".join(sorted(d.value for d in c.differences)) for c in actual if c.table.name == name)


# Row filters and column lists came with PostgreSQL 15.
SINCE_15 = {"filter", "filter_again", "the_same_filter", "column_list"}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=[pytest.mark.since(15)] * (case.name in SINCE_15)) for case in CASES],
)
def test_what_differs_is_named_and_nothing_else(source: Drained, case: Case) -> None:
    """A reading at the next connect and one while the stream is idle give the same words: those of the decision table."""
    source.database.execute(*case.setup)
    source.begin()
    source.database.execute(*case.altered)
    source.drain()
    source.database.execute("CREATE TABLE wal_goes_on ()")
    source.drain()
    assert words(changes(source)) == case.words


@pytest.mark.since(18)
@pytest.mark.parametrize(
    ("with_", "altered", "expected"),
    [
        ("none", SQL("ALTER PUBLICATION shop SET (publish_generated_columns = stored)"), "column sent"),
        ("stored", SQL("ALTER PUBLICATION shop SET (publish_generated_columns = none)"), "column dropped"),
        ("stored", SQL("ALTER TABLE t ALTER g SET EXPRESSION AS (id * 3)"), "column altered, rewritten"),
    ],
    ids=["sent", "not_sent", "another_expression"],
)
def test_what_a_publication_of_generated_columns_does(source: Drained, with_: str, altered: SQL, expected: str) -> None:
    """Rows from now on have older values that nothing sends; another expression rewrites the table."""
    source.database.execute(
        *GENERATED, SQL("ALTER PUBLICATION shop SET (publish_generated_columns = {})").format(SQL(with_))
    )
    source.begin()
    source.database.execute(altered)
    source.drain()
    assert words(changes(source)) == expected


def test_both_positions_of_a_record_enclose_the_change(source: Drained) -> None:
    """The ALTER's commit lies between the positions, whatever else is written meanwhile."""
    source.database.execute(*PLAIN)
    source.begin()
    for _ in range(3):
        source.drain()
        before = source.database.end_of_wal()
        source.database.execute("ALTER TABLE t ALTER o TYPE int USING o + 1")
        after = source.database.end_of_wal()
        source.drain()
        record = records(source)[-1].catalog
        assert record is not None
        assert record.lower_lsn is not None
        assert record.lower_lsn <= before
        assert after <= record.upper_lsn
    assert [m.kind for m in records(source)] == [ManifestKind.CATALOG] * 3


def test_a_writer_that_has_not_ended_holds_the_lower_bound_back(source: Drained) -> None:
    """The writer might be committing: its record could be in the WAL already, before its ALTER is visible."""
    source.database.execute(*PLAIN)
    source.begin()
    source.drain()
    with source.database.connect(autocommit=False) as writer:
        writer.execute("ALTER TABLE t ALTER o TYPE int USING o + 1")
        begun = Lsn.parse(source.database.value("SELECT pg_current_wal_insert_lsn()::text"))
        source.database.execute("CREATE TABLE another (id int)")
        source.drain()
        looked = source.chain().newest.catalog_lsn
        assert looked is not None
        assert looked < begun
        writer.commit()
    source.drain()
    record = records(source)[-1].catalog
    assert record is not None
    assert record.lower_lsn == looked
    assert words(changes(source)) == "column altered, rewritten"


def test_a_table_that_is_locked_does_not_keep_the_reading_waiting(source: Drained) -> None:
    """An ALTER that goes on for hours: the catalog's own tables are read, and the table is not opened."""
    source.database.execute(*PLAIN, "CREATE TABLE u (id int PRIMARY KEY)", "ALTER PUBLICATION shop ADD TABLE u")
    source.begin()
    source.database.execute("ALTER TABLE u REPLICA IDENTITY FULL")
    with source.database.connect(autocommit=False) as writer:
        writer.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        source.drain()
        writer.rollback()
    assert words(changes(source), "u") == "identity"


def test_an_added_columns_default_is_recorded_while_it_can_be_read(source: Drained) -> None:
    """After VACUUM FULL the catalog does not have it any more, and the rows from before still read it."""
    source.database.execute(*PLAIN)
    source.begin()
    source.database.execute("ALTER TABLE t ADD w int DEFAULT 7, ADD x text")
    source.drain()
    source.database.execute("VACUUM FULL t")
    source.drain()
    assert {c.name: c.missing for c in changes(source)[0].added} == {"w": "{7}", "x": None}


def test_the_newest_fingerprint_is_what_the_next_reading_is_compared_with(source: Drained) -> None:
    """An ignored difference is recorded, too: a partition is created, and truncated later."""
    source.database.execute(*TREE)
    source.begin()
    source.database.execute("CREATE TABLE p3 PARTITION OF t FOR VALUES FROM (20) TO (30)")
    source.drain()
    source.database.execute("INSERT INTO t VALUES (21)", "TRUNCATE p3")
    source.drain()
    assert words(changes(source)) == "partition created; partition file"
    existing = newest_catalog(source.chain())
    assert existing is not None
    assert {len(t.leaves) for t in existing.tables.values()} == {3}


def test_nothing_new_is_no_link(source: Drained) -> None:
    """A drain that is started again and again adds none."""
    source.database.execute(*TREE)
    source.begin()
    for _ in range(3):
        source.database.execute(SQL("INSERT INTO t SELECT max(id) + 1 FROM t"))
        source.drain()
    assert not records(source)


def test_what_no_table_differs_in_is_recorded_too(source: Drained) -> None:
    """A new owner explains the publication's new catalog line once, but no later alteration."""
    source.database.execute(*PLAIN)
    source.begin()
    source.database.execute("ALTER PUBLICATION shop OWNER TO pg_database_owner")
    source.drain()
    assert [m.catalog.changes for m in records(source) if m.catalog is not None] == [()]
    source.database.execute(
        "ALTER PUBLICATION shop SET (publish = 'insert')",
        "ALTER PUBLICATION shop SET (publish = 'insert, update, delete, truncate')",
    )
    source.drain()
    assert words(changes(source)) == "publication altered"


def test_the_page_has_the_decisions_of_the_code() -> None:
    """docs/schema-changes.md: each word with its consequence, and no other."""
    rows = re.findall(r"^\| `([a-z ]+)` \|.*\| (\w[\w ]*) \|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert dict(rows) == {difference.value: difference.consequence.value for difference in Difference}
    assert {consequence for _, consequence in rows} == {v.value for v in Consequence}
