"""Random ALTERs between random changes: every table that they affect is named in the chain, and no other one.

The single ALTERs, with the words they are named by, are in `tests/edges/schema/test_catalog_differences.py`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from psycopg.sql import SQL, Composed, Identifier

from lakeproof.catalog.differences import Consequence
from lakeproof.landing.catalog_record import CatalogRecord
from lakeproof.lsn import Lsn
from tests.support.ingest.fix_drain import Drained
from tests.support.servers.fix_postgres import Database

SEED = int(os.environ["LAKEPROOF_SEED"])
PLAIN = [f"t{i}" for i in range(6)]
MOODY = ["m0", "m1"]
ROOTS = ["r0", "r1"]
TABLES = [*PLAIN, *MOODY, *ROOTS]


@dataclass
class Source:
    """The source, what was done to it last, and which tables that affects: `SNAPSHOT`, or `APPLY`."""

    drained: Drained
    rng: random.Random
    silent: Sequence[Alter]
    serial: int = 0
    label: int = 0
    done: list[str] = field(default_factory=list)

    def run(self, text: str, *names: str) -> None:
        """Run a statement; `{}` stand for names."""
        statement = SQL(text).format(*map(Identifier, names))
        self.done.append(statement.as_string(None))
        self.drained.database.execute(statement)

    def next(self) -> int:
        """A number that was not there before."""
        self.serial += 1
        return self.serial


Alter = Callable[[Source, str], object]


def _statement(text: str) -> Alter:
    return lambda source, table: source.run(text, table)


def _filter(source: Source, table: str) -> None:
    source.run("ALTER PUBLICATION shop DROP TABLE {}", table)
    source.run(f"ALTER PUBLICATION shop ADD TABLE {{}} WHERE (id > {source.next()})", table)


def _attach(source: Source, table: str) -> None:
    number, name = source.next(), f"{table}_x{source.serial}"
    source.run("CREATE TABLE {} (id int PRIMARY KEY, v text)", name)
    source.run(f"INSERT INTO {{}} SELECT {number} * 100 + 1", name)
    place = f"FROM ({number * 100}) TO ({number * 100 + 100})"
    source.run(f"ALTER TABLE {{}} ATTACH PARTITION {{}} FOR VALUES {place}", table, name)


def _made(source: Source, table: str, kind: str = "TABLE") -> str:
    number, name = source.next(), f"{table}_y{source.serial}"
    place = f"FROM ({number * 100}) TO ({number * 100 + 100})"
    source.run(f"CREATE {kind} {{}} PARTITION OF {{}} FOR VALUES {place}", name, table)
    return name


def _made_and_emptied(source: Source, table: str) -> None:
    name = _made(source, table)
    source.run(f"INSERT INTO {{}} SELECT {source.serial} * 100 + 1", name)
    source.run("TRUNCATE {}", name)


def _made_and_logged(source: Source, table: str) -> None:
    name = _made(source, table, "UNLOGGED TABLE")
    source.run(f"INSERT INTO {{}} SELECT {source.serial} * 100 + 1", name)
    source.run("ALTER TABLE {} SET LOGGED", name)


def _grown(source: Source, table: str) -> None:
    source.run(f"ALTER TABLE {{}} ADD w{source.next()} int DEFAULT 5", table)


# Each of them leaves the table as it can be altered again.
SILENT: list[Alter] = [
    _statement("ALTER TABLE {} ALTER n TYPE int USING n + 1"),
    _filter,
]
HARMLESS: list[Alter] = [
    _statement("VACUUM FULL {}"),
    _statement("CLUSTER {} USING {}"),
    _statement("ALTER TABLE {} ALTER n SET STATISTICS 50"),
    _statement("CREATE INDEX ON {} (n)"),
    _statement("GRANT SELECT ON {} TO public"),
    _statement("ANALYZE {}"),
    _statement("TRUNCATE {}"),
    _statement("COMMENT ON TABLE {} IS 'x'"),
]
HARMLESS[1] = lambda source, table: source.run("CLUSTER {} USING {}", table, f"{table}_pkey")
APPLIED: list[Alter] = [_grown]
SILENT_ROOT: list[Alter] = [
    lambda source, table: source.run("TRUNCATE {}", f"{table}_p0"),
    lambda source, table: source.run("VACUUM FULL {}", f"{table}_p0"),
    _attach,
    _made_and_emptied,
    _made_and_logged,
]
HARMLESS_ROOT: list[Alter] = [_made, _statement("TRUNCATE {}"), _statement("ANALYZE {}")]


@pytest.fixture
def source(database: Database, server_version: int, tmp_path: Path) -> Source:
    """Tables of every kind in one publication."""
    silent = SILENT if server_version >= 15 else [alter for alter in SILENT if alter is not _filter]
    result = Source(Drained(database, tmp_path / "lake"), random.Random(SEED), silent)
    result.run("CREATE TYPE mood AS ENUM ('a0', 'b')")
    for name in PLAIN:
        result.run("CREATE TABLE {} (id serial PRIMARY KEY, n int, v text)", name)
    for name in MOODY:
        result.run("CREATE TABLE {} (id serial PRIMARY KEY, n int, m mood[])", name)
    for name in ROOTS:
        result.run("CREATE TABLE {} (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)", name)
        result.run("CREATE TABLE {} PARTITION OF {} FOR VALUES FROM (0) TO (100)", f"{name}_p0", name)
    listed = SQL(", ").join(map(Identifier, TABLES))
    create: Composed = SQL("CREATE PUBLICATION shop FOR TABLE {} WITH (publish_via_partition_root)").format(listed)
    database.execute(create)
    result.drained.begin()
    return result


def alter(source: Source, table: str) -> Consequence | None:
    """Do something random to a table, and return its consequence; None for none."""
    root = table in ROOTS
    kind = source.rng.choice(["silent", "harmless", "harmless", "applied", "nothing"])
    if kind == "silent":
        source.rng.choice(SILENT_ROOT if root else source.silent)(source, table)
        return Consequence.SNAPSHOT
    if kind == "harmless":
        source.rng.choice(HARMLESS_ROOT if root else HARMLESS)(source, table)
    if kind == "applied" and not root:
        source.rng.choice(APPLIED)(source, table)
        return Consequence.APPLY
    return None


def change(source: Source) -> None:
    """Random rows."""
    for table in source.rng.sample([*PLAIN, *MOODY], 3):
        source.run("INSERT INTO {} (n) SELECT generate_series(1, 5)", table)
        source.run("UPDATE {} SET n = n + 1 WHERE n < 3", table)


def records_after(source: Source, number: int) -> list[CatalogRecord]:
    """The chain's records from a link on."""
    return [m.catalog for m in source.drained.chain().manifests(number) if m.catalog is not None]


def round_of(source: Source) -> None:
    """Alter some tables, change rows, drain; compare what is named with what was affected."""
    source.done.clear()
    first = source.drained.chain().next_number
    begun = source.drained.database.end_of_wal()
    expected: dict[str, Consequence] = {}
    for table in source.rng.sample(TABLES, source.rng.randrange(5)):
        change(source)
        consequence = alter(source, table)
        if consequence is not None:
            expected[table] = consequence
    if source.rng.random() < 0.3 and not set(MOODY) & expected.keys():
        number = source.next()
        source.run(f"ALTER TYPE mood RENAME VALUE 'a{source.label}' TO 'a{number}'")
        source.label = number
        expected |= dict.fromkeys(MOODY, Consequence.SNAPSHOT)
    ended = source.drained.database.end_of_wal()
    change(source)
    source.drained.drain()
    actual = records_after(source, first)
    named = {c.table.name: c.consequence for r in actual for c in r.changes if c.consequence is not Consequence.IGNORE}
    assert named == expected, f"seed {SEED}: {source.done}"
    for record in actual:
        assert record.lower_lsn is not None
        assert _encloses(record, begun, ended) or not record.changes


def _encloses(record: CatalogRecord, begun: Lsn, ended: Lsn) -> bool:
    return record.lower_lsn is not None and record.lower_lsn <= begun and ended <= record.upper_lsn


def test_every_table_that_an_alter_affects_is_named_and_no_other(source: Source) -> None:
    """A few rounds."""
    for _ in range(6):
        round_of(source)


@pytest.mark.full
def test_every_table_that_an_alter_affects_is_named_in_many_rounds(source: Source) -> None:
    """The same test runs for longer."""
    for _ in range(150):
        round_of(source)
