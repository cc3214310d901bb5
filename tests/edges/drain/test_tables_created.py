"""Tables that the drain and the lake believe to be created in the stream: all of their rows are in it.

The rows are read from the landing and added up here; that such tables enter the lake and are equal there is in
`tests/scenarios/test_table_created_in_the_stream.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.sql import SQL, Identifier
from typing_extensions import LiteralString

from lakeproof.catalog.differences import Difference
from lakeproof.lake.planning.entries import CreatedTable, EntryLimit, created_tables_to_enter
from lakeproof.lake.planning.plan import RangeLimit, plan_cycle
from lakeproof.lake.records.documents import Created, Cut, CutTable, SchemaChange
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from tests.edges.drain.created_table_cases import CASES, FILLED, LATER, do
from tests.support.ingest.fix_drain import Drained, landed_rows, told_to_stop, wait_until
from tests.support.lake.modelled_lake import ModelledLake, cut_after
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres


def begun(database: Database, lake: Path, publication: LiteralString) -> Drained:
    """A landing of a database with some tables."""
    database.execute(
        "CREATE SCHEMA apart",
        "CREATE TABLE first (id serial PRIMARY KEY, v int DEFAULT 7)",
        "CREATE TABLE root (id int, v text DEFAULT 'q') PARTITION BY RANGE (id)",
        SQL("ALTER DATABASE {} SET logical_decoding_work_mem = '64kB'").format(Identifier(database.name)),
        publication,
    )
    result = Drained(database, lake)
    result.begin()
    return result


def caught_up(drained: Drained) -> None:
    """Drain, and once more: the landing is then past what was noticed in the catalog."""
    drained.drain()
    drained.database.execute("INSERT INTO first DEFAULT VALUES")
    drained.drain()


def believed(drained: Drained) -> dict[TableName, CreatedTable]:
    """The tables that the lake would take in, each held against the source: every row of theirs is in the landing."""
    chain = drained.chain()
    actual = {
        t: b for t, b in created_tables_to_enter(chain, None, chain.head.end_lsn).items() if b.enters_at <= chain.end
    }
    for table, created in actual.items():
        rows = [(v, row) for v, row in landed_rows(chain) if v.oid == created.version.oid]
        assert not created.whole or all(row["_lp_lsn"] > created.lower_lsn.value for _, row in rows), table
        assert {v.table for v, _ in rows} <= {table}
    lake = ModelledLake(drained)
    lake.compact()
    assert not lake.difference()
    assert lake.cut is not None
    assert actual.keys() == lake.cut.tables.keys()
    return actual


def entered(drained: Drained, cut: Cut | None = None, at_once: int = 1000) -> tuple[dict[TableName, list[Lsn]], Cut]:
    """The tables that cycles after `cut` take in, as they are planned one after the other, with where; and the last cut.

    A cycle takes `at_once` of them.
    """
    chain = drained.chain()
    actual: dict[TableName, list[Lsn]] = {}
    while plan := plan_cycle(chain, cut, {}, RangeLimit(chain.end, 40, EntryLimit(at_once))):
        tables = {} if cut is None else dict(cut.tables)
        for table, intent in plan.tables.items():
            work = intent.work
            since = intent.from_lsn if isinstance(work, Created) else tables[table].snapshot_lsn
            version = work.version if isinstance(work, Created | SchemaChange) else tables[table].version
            if isinstance(work, Created):
                actual.setdefault(table, []).append(plan.end)
            tables[table] = CutTable(plan.end, since, 0, 0, version, chain.incarnation, chain.incarnation)
        cut = cut_after(plan, cut, tables, chain.incarnation)
    assert cut is not None
    assert cut.position == chain.end, "nothing is stuck"
    assert not cut.held
    return actual, cut


def test_exactly_the_tables_created_in_the_stream_are_believed(database: Database, tmp_path: Path) -> None:
    """Tables are created in every way, under a publication of all tables."""
    drained = begun(database, tmp_path / "lake", "CREATE PUBLICATION shop FOR ALL TABLES")
    for name, case in CASES.items():
        do(database, name, case.does)
    caught_up(drained)
    actual = believed(drained)
    assert {t.name for t in actual} == {name for name, case in CASES.items() if case.created}
    # In cycles of 40 rows: some are past the first rows of a table before they know that it was created in the stream.
    places, _ = entered(drained)
    assert places.keys() == actual.keys()
    assert all(actual[table].enters_at <= place for table, (place,) in places.items())
    # Few at a time: none is passed over, wherever the cycles end for it.
    by_few, _ = entered(drained, at_once=20)
    assert by_few.keys() == actual.keys()
    assert all(actual[table].enters_at <= place for table, (place,) in by_few.items())


def test_a_table_made_again_takes_the_place_of_the_one_that_was_dropped(database: Database, tmp_path: Path) -> None:
    """The dropped table may be in the lake, or created and dropped in the same batch, with other columns or the same."""
    drained = begun(database, tmp_path / "lake", "CREATE PUBLICATION shop FOR ALL TABLES")
    again: tuple[LiteralString, ...] = ("DROP TABLE {t}", *FILLED, "DROP TABLE {t}", *FILLED, *LATER)
    do(database, "same", FILLED)
    do(database, "other", ("CREATE TABLE {t} (id text, w int)", "INSERT INTO {t} VALUES ('a', 1)"))
    caught_up(drained)
    _, cut = entered(drained)
    assert {t.name for t in cut.tables} == {"same", "other"}
    do(database, "same", again)
    do(database, "other", again)
    caught_up(drained)
    assert {t.name for t in believed(drained)} == {"same", "other"}
    for before in (None, cut):
        places, after = entered(drained, before)
        assert {t.name: len(place) for t, place in places.items()} == {"same": 1, "other": 1}
        assert {position.version.id for position in after.tables.values()} == {
            b.version.id for b in believed(drained).values()
        }


def test_the_catalog_is_read_as_soon_as_a_new_table_has_rows(database: Database, tmp_path: Path) -> None:
    """An ALTER soon after is then a change of schema like any other."""
    drained = begun(database, tmp_path / "lake", "CREATE PUBLICATION shop FOR ALL TABLES")
    with drained.running("stopped", flush_interval_s=0.05) as process:
        do(database, "young", FILLED)
        wait_until(lambda: any(m.catalog is not None for m in drained.chain().manifests(1)))
        do(database, "young", ("ALTER TABLE young ALTER v TYPE text USING v + 1",))
        told_to_stop(process)
    records = [m.catalog for m in drained.chain().manifests(1) if m.catalog is not None]
    assert next(c.differences for r in records for c in r.changes) == (Difference.CREATED,)
    assert not believed(drained), "its rows were rewritten after that"


@pytest.mark.since(15)
def test_a_table_of_a_published_schema_counts_unless_it_was_moved_there(database: Database, tmp_path: Path) -> None:
    """A moved table's earlier rows are not in the stream."""
    drained = begun(database, tmp_path / "lake", "CREATE PUBLICATION shop FOR TABLES IN SCHEMA public")
    moved = (
        "CREATE TABLE apart.{t} (id int)",
        "INSERT INTO apart.{t} VALUES (1)",
        "ALTER TABLE apart.{t} SET SCHEMA public",
        "INSERT INTO {t} VALUES (2)",
    )
    do(database, "made", FILLED)
    do(database, "moved", moved)
    do(database, "moved_at_once", ("BEGIN", *moved, "COMMIT"))
    do(database, "moved_empty", (moved[0], moved[2], moved[3]))
    do(
        database,
        "away_and_back",
        (
            *FILLED,
            "ALTER TABLE {t} SET SCHEMA apart",
            "INSERT INTO apart.{t} VALUES (5, 5)",
            "ALTER TABLE apart.{t} SET SCHEMA public",
        ),
    )
    caught_up(drained)
    assert {t.name for t in believed(drained)} == {"made"}


def test_a_table_in_a_publication_that_names_it_does_not_count_as_created(database: Database, tmp_path: Path) -> None:
    """Rows from before it was added are not sent."""
    drained = begun(database, tmp_path / "lake", "CREATE PUBLICATION shop FOR TABLE first, root")
    do(database, "added", (*FILLED, "ALTER PUBLICATION shop ADD TABLE {t}"))
    do(
        database,
        "part",
        ("CREATE TABLE {t} PARTITION OF root FOR VALUES FROM (0) TO (10)", "INSERT INTO root VALUES (1, 'a')"),
    )
    do(database, "mid", ("CREATE TABLE {t} PARTITION OF root FOR VALUES FROM (10) TO (30) PARTITION BY RANGE (id)",))
    do(
        database,
        "below",
        ("CREATE TABLE {t} PARTITION OF mid FOR VALUES FROM (10) TO (20)", "INSERT INTO root VALUES (11, 'a')"),
    )
    do(database, "foreign_mid", ("CREATE TABLE {t} (id int, v text) PARTITION BY RANGE (id)",))
    do(
        database,
        "came",
        (
            "CREATE TABLE {t} PARTITION OF foreign_mid FOR VALUES FROM (30) TO (40)",
            "INSERT INTO {t} VALUES (31, 'x')",
            "ALTER TABLE root ATTACH PARTITION foreign_mid FOR VALUES FROM (30) TO (40)",
        ),
    )
    do(database, "attached", CASES["attached"].does)
    caught_up(drained)
    assert {t.name for t in believed(drained)} == {"part", "below"}


def test_what_went_under_a_published_root_is_not_the_partitions_own(database: Database, tmp_path: Path) -> None:
    """Detached, it is a separate table, with rows that came under the root's name; a new root may have lost some."""
    result: LiteralString = "CREATE PUBLICATION shop FOR ALL TABLES WITH (publish_via_partition_root)"
    drained = begun(database, tmp_path / "lake", result)
    part: tuple[LiteralString, ...] = (
        "CREATE TABLE {t} PARTITION OF root FOR VALUES FROM (0) TO (10)",
        "INSERT INTO root VALUES (1, 'a')",
        "ALTER TABLE root DETACH PARTITION {t}",
    )
    do(database, "detached", part)
    do(database, "detached_at_once", ("BEGIN", *part, "COMMIT"))
    do(
        database,
        "rooted",
        (
            "CREATE TABLE {t} (id int, v text) PARTITION BY RANGE (id)",
            "CREATE TABLE {t}_0 PARTITION OF {t} DEFAULT",
            "INSERT INTO {t} VALUES (1, 'a')",
            "DROP TABLE {t}_0",
        ),
    )
    do(database, "plain", FILLED)
    # A key writes the line of each of its columns again, as DETACH does.
    keyed = ("BEGIN", "CREATE TABLE {t} AS SELECT 1 AS a, 2 AS b", "ALTER TABLE {t} ADD PRIMARY KEY (a, b)", "COMMIT")
    do(database, "all_in_the_key", keyed)
    caught_up(drained)
    assert {t.name for t in believed(drained)} == {"plain"}


def test_a_publication_that_was_altered_meanwhile_proves_nothing(database: Database, tmp_path: Path) -> None:
    """Altered and altered back; what is made after it was seen is created again."""
    drained = begun(database, tmp_path / "lake", "CREATE PUBLICATION shop FOR ALL TABLES")
    inserts = "ALTER PUBLICATION shop SET (publish = 'insert')"
    back = "ALTER PUBLICATION shop SET (publish = 'insert, update, delete, truncate')"
    do(database, "before", (*FILLED, inserts, "UPDATE {t} SET v = 5", back))
    caught_up(drained)
    do(database, "after", FILLED)
    caught_up(drained)
    assert {t.name for t in believed(drained)} == {"after"}


def test_a_table_whose_creation_began_before_its_publication_does_not_count(database: Database, tmp_path: Path) -> None:
    """The transaction has a later xid than any that had ended, and began to write before the publication existed."""
    database.execute("CREATE TABLE first (id serial PRIMARY KEY)")
    with database.connect(autocommit=False) as earlier, database.connect(autocommit=False) as later:
        earlier.execute("CREATE TABLE early (id int); INSERT INTO early VALUES (1)")
        database.execute("CREATE PUBLICATION shop FOR ALL TABLES")
        later.execute("CREATE TABLE late (id int); INSERT INTO late VALUES (1)")
        drained = Drained(database, tmp_path / "lake")
        earlier.commit()
        later.commit()
    drained.begin()
    with database.connect(autocommit=False) as conn:
        conn.execute("CREATE TABLE open (id int); INSERT INTO open VALUES (1)")
        database.execute("ALTER PUBLICATION shop SET (publish = 'insert, update, delete')")
        drained.drain()
        conn.commit()
    caught_up(drained)
    assert not believed(drained)


def test_a_table_created_while_the_catalog_is_read_again_and_again_counts_as_created(
    database: Database, tmp_path: Path
) -> None:
    """The transaction stays open for several readings: none sees the table, and the rule is older than all."""
    drained = begun(database, tmp_path / "lake", "CREATE PUBLICATION shop FOR ALL TABLES")
    with database.connect(autocommit=False) as conn:
        conn.execute("CREATE TABLE slow (id int PRIMARY KEY, v int); INSERT INTO slow VALUES (1, 1)")
        for number in range(3):
            do(database, f"quick{number}", FILLED)
            caught_up(drained)
        conn.execute("INSERT INTO slow VALUES (2, 2)")
        conn.commit()
    caught_up(drained)
    assert {t.name for t in believed(drained)} == {"slow", "quick0", "quick1", "quick2"}
