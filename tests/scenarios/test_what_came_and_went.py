"""What came and went between two readings of the catalog: a partition with its rows, an enum's label, an attribute.

By the time the catalog is read, it looks as before. The rows that came meanwhile are not what the source has: of a partition
that is gone they came as the root's, of a label or an attribute they have a text that nobody prints any more.
"""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from typing_extensions import LiteralString

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.lake.records.store import newest_cut
from lakeproof.landing.chain import Chain
from lakeproof.names import Incarnation
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.proof_steps import WITHOUT, into_the_lake, table
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres
_LATER = "FOR VALUES FROM (100) TO (200)"


@pytest.fixture
def config(database: Database, tmp_path: Path) -> Config:
    """Roots that stand for their partitions, and other tables, in the lake and proven."""
    database.execute(
        "CREATE PUBLICATION pub FOR ALL TABLES WITH (publish_via_partition_root)",
        "CREATE TYPE label AS ENUM ('a', 'b')",
        "CREATE TYPE pair AS (x int)",
        "CREATE TABLE labelled (id int PRIMARY KEY, v label)",
        "CREATE TABLE paired (id int PRIMARY KEY, v pair)",
        "CREATE TABLE part (id int PRIMARY KEY, v text)",
        "INSERT INTO labelled VALUES (1, 'a')",
        "INSERT INTO paired VALUES (1, ROW(1))",
        "INSERT INTO part VALUES (150, 'own')",
    )
    for root in ("r", "q"):
        database.execute(
            f"CREATE TABLE {root} (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
            f"CREATE TABLE {root}1 PARTITION OF {root} FOR VALUES FROM (0) TO (100)",
            f"INSERT INTO {root} SELECT i, 'v' FROM generate_series(1, 50) i",  # noqa: S608  the test's own
        )
    database.execute(
        "CREATE TABLE whole (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE full1 PARTITION OF whole DEFAULT",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "ALTER TABLE full1 REPLICA IDENTITY FULL",
        "INSERT INTO whole VALUES (1, 'v')",
    )
    config = Config(path=tmp_path / "x.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source()})
    bootstrap(config, "shop")
    into_the_lake(config)
    assert {p.status for p in prove(config, "shop", None, WITHOUT).tables.values()} == {"equal"}
    return config


def check_held(config: Config, *names: str) -> None:
    """After what came, these tables are held, and all others are what the source has."""
    into_the_lake(config)
    cut = newest_cut(SourceLake.open(config.location, "shop"))
    assert cut is not None
    assert cut.held.keys() == {table(name) for name in names}
    proof = prove(config, "shop", None, WITHOUT)
    assert {t.name for t, p in proof.tables.items() if p.status != "equal"} == set(names)


@pytest.mark.parametrize("gone", [("DROP TABLE r2",), ("ALTER TABLE r DETACH PARTITION r2", "DROP TABLE r2")])
def test_a_partition_that_was_made_filled_and_is_gone_holds_its_root(
    database: Database, config: Config, gone: tuple[LiteralString, ...]
) -> None:
    """Another root gets a partition that stays, and follows."""
    database.execute(
        *(f"CREATE TABLE r2 PARTITION OF r {_LATER}", "INSERT INTO r VALUES (101, 'gone'), (51, 'stays')"),
        *(f"CREATE TABLE q2 PARTITION OF q {_LATER}", "INSERT INTO q VALUES (101, 'stays')"),
    )
    database.execute(*gone)
    check_held(config, "r")


def test_a_table_that_was_a_partition_for_a_while_is_held_with_the_root(database: Database, config: Config) -> None:
    """Its rows of that time came as the root's. TRUNCATE of a root and a table says nothing of the kind."""
    database.execute(
        "TRUNCATE q, labelled",
        f"ALTER TABLE r ATTACH PARTITION part {_LATER}",
        "INSERT INTO r VALUES (101, 'came')",
        "ALTER TABLE r DETACH PARTITION part",
        "INSERT INTO part VALUES (102, 'own')",
    )
    check_held(config, "r", "part")


def test_the_reading_lands_before_the_rows_that_it_is_about(database: Database, config: Config) -> None:
    """Megabytes came before: they are in a segment of their own, and no kill leaves the rows without the reading."""
    lake = SourceLake.open(config.location, "shop")
    first = Chain.open(lake, Incarnation(1)).next_number
    database.execute(
        *["INSERT INTO q SELECT max(id) + 1, repeat('x', 1000000) FROM q"] * 20,
        *(f"CREATE TABLE r2 PARTITION OF r {_LATER}", "INSERT INTO r VALUES (101, 'gone')", "DROP TABLE r2"),
    )
    check_held(config, "r")
    chain = Chain.open(lake, Incarnation(1))
    manifests = [chain.manifest(number) for number in range(first, chain.next_number)]
    records = [m.number for m in manifests if m.catalog is not None and m.catalog.changes]
    with_rows = {m.number: {file.table.name for file in m.files} for m in manifests if m.files}
    assert min(with_rows) < min(records) < min(n for n, names in with_rows.items() if "r" in names)


@pytest.mark.parametrize("memory", ["64MB", "64kB"])
def test_so_it_does_amid_one_large_transaction(database: Database, config: Config, memory: LiteralString) -> None:
    """The partition comes in a later part of it, whether the server streams the transaction or not."""
    lake = SourceLake.open(config.location, "shop")
    first = Chain.open(lake, Incarnation(1)).next_number
    database.execute(
        f"ALTER ROLE CURRENT_USER SET logical_decoding_work_mem = '{memory}'", "INSERT INTO q VALUES (60, 'v')"
    )
    with psycopg.connect(database.dsn) as conn:
        for number in range(20):
            conn.execute("INSERT INTO q VALUES (%s, repeat('x', 1000000))", [61 + number])
        conn.execute(f"CREATE TABLE r2 PARTITION OF r {_LATER}")
        conn.execute("INSERT INTO r VALUES (101, 'gone')")
    database.execute("DROP TABLE r2")
    check_held(config, "r")
    chain = Chain.open(lake, Incarnation(1))
    manifests = [chain.manifest(number) for number in range(first, chain.next_number)]
    recorded = min(m.number for m in manifests if m.catalog is not None and m.catalog.changes)
    assert recorded < min(m.number for m in manifests if "r" in {file.table.name for file in m.files})


def test_a_label_and_an_attribute_that_came_and_went_hold_their_tables(database: Database, config: Config) -> None:
    """Rows that came meanwhile have another text than the source has now."""
    database.execute(
        *("ALTER TYPE label RENAME VALUE 'a' TO 'x'", "INSERT INTO labelled VALUES (2, 'x')"),
        *("ALTER TYPE label RENAME VALUE 'x' TO 'a'", "INSERT INTO labelled VALUES (3, 'a')"),
        *("ALTER TYPE pair ADD ATTRIBUTE y int", "INSERT INTO paired VALUES (2, ROW(1, 2))"),
        *("ALTER TYPE pair DROP ATTRIBUTE y", "INSERT INTO paired VALUES (3, ROW(3))"),
    )
    check_held(config, "labelled", "paired")


def test_an_update_without_its_old_row_holds_a_root_of_identity_full(database: Database, config: Config) -> None:
    """A partition had its primary key as identity for a while, and the root has no key: which row goes is open."""
    database.execute(
        *("ALTER TABLE full1 REPLICA IDENTITY DEFAULT", "UPDATE whole SET v = 'x' WHERE id = 1"),
        *("ALTER TABLE full1 REPLICA IDENTITY FULL", "INSERT INTO whole VALUES (2, 'v')"),
    )
    check_held(config, "whole")
