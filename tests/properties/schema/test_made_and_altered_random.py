"""Tables made in the stream under random sequences of rows and ALTERs, looks at the catalog and compactions, without a JVM.

Whatever the order, a table of the lake that is not held is the source's, in columns and rows. Cycles are planned as they are
run, and added up by plain Python (`tests/support/lake/modelled_lake.py`). `LAKEPROOF_SEED` repeats a run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.ingest.fix_drain import Drained
from tests.support.lake.modelled_lake import ModelledLake
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres
SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
_KINDS = ("int", "bigint", "text")
_MADE = (
    ("CREATE TABLE {t} (id int PRIMARY KEY, a int)",),
    ("CREATE TABLE {t} (id int, a int)", "ALTER TABLE {t} REPLICA IDENTITY FULL"),
    ("CREATE TABLE {t} (id int, a int)",),
    ("CREATE TABLE {t} (id int PRIMARY KEY, a int, b int)",),
    ("CREATE TABLE {t} AS SELECT i AS id, i AS a FROM generate_series(1, {n}) i",),
)


class Tables:
    """Tables that are made, filled, altered and renamed at random; what was done is kept to be shown."""

    def __init__(self, database: Database, chance: random.Random) -> None:
        self.database, self.chance = database, chance
        self.columns: dict[str, list[str]] = {}
        self.with_identity: set[str] = set()
        self.serial = 0
        self.done: list[str] = []

    def step(self) -> None:
        """Make a table, or do something to one."""
        if not self.columns or (len(self.columns) < 6 and self.chance.random() < 0.3):
            return self._make()
        name = self.chance.choice(sorted(self.columns))
        ways = [self._rows, self._rows, self._add, self._add, self._rename, self._drop, self._swap, self._key]
        self.chance.choice(ways)(name)
        return None

    def _run(self, statements: Sequence[str]) -> None:
        whole = ["BEGIN", *statements, "COMMIT"] if self.chance.random() < 0.3 else list(statements)
        self.done += whole
        with self.database.connect() as conn:
            for statement in whole:
                conn.execute(statement.encode())

    def _make(self) -> None:
        self.serial += 1
        name = f"t{self.serial}"
        way = self.chance.choice(_MADE)
        self.columns[name] = ["a", "b"] if " b int" in way[0] else ["a"]
        if "KEY" in way[0] or "FULL" in way[-1]:
            self.with_identity.add(name)
        self._run([text.format(t=name, n=self.chance.randrange(4)) for text in way])

    def _rows(self, name: str) -> None:
        self.serial += 1
        listed = ", ".join(["id", *self.columns[name]])
        values = ", ".join(str(self.serial * 100) for _ in self.columns[name])
        statements = [f"INSERT INTO {name} ({listed}) VALUES ({self.serial * 100}, {values})"]  # noqa: S608  its own names
        if name in self.with_identity and self.chance.random() < 0.5:
            column = self.columns[name][0]
            statements.append(f"UPDATE {name} SET {column} = '{self.serial}' WHERE id % 3 = 0")  # noqa: S608  as above
        self._run(statements)

    def _add(self, name: str) -> None:
        self.serial += 1
        kind = self.chance.choice(_KINDS)
        default = self.chance.choice(["", " DEFAULT '42'"])
        self.columns[name].append(f"c{self.serial}")
        self._run([f"ALTER TABLE {name} ADD c{self.serial} {kind}{default}"])

    def _rename(self, name: str) -> None:
        self.serial += 1
        number = self.chance.randrange(len(self.columns[name]))
        old, self.columns[name][number] = self.columns[name][number], f"r{self.serial}"
        self._run([f"ALTER TABLE {name} RENAME {old} TO r{self.serial}"])

    def _drop(self, name: str) -> None:
        if len(self.columns[name]) > 1:
            gone = self.columns[name].pop(self.chance.randrange(len(self.columns[name])))
            self._run([f"ALTER TABLE {name} DROP {gone}"])

    def _swap(self, name: str) -> None:
        """Two columns of the table exchange their names, or two tables do."""
        others = [other for other in self.columns if other != name]
        if self.chance.random() < 0.5 and others:
            other = self.chance.choice(others)
            self._run([f"ALTER TABLE {a} RENAME TO {b}" for a, b in ((name, "tmp"), (other, name), ("tmp", other))])
            self.columns[name], self.columns[other] = self.columns[other], self.columns[name]
            if (name in self.with_identity) != (other in self.with_identity):
                self.with_identity ^= {name, other}
        elif len(self.columns[name]) > 1:
            first, second = self.chance.sample(self.columns[name], 2)
            pairs = ((first, "tmp"), (second, first), ("tmp", second))
            self._run([f"ALTER TABLE {name} RENAME {a} TO {b}" for a, b in pairs])
            swapped = {first: second, second: first}
            self.columns[name] = [swapped.get(column, column) for column in self.columns[name]]

    def _key(self, name: str) -> None:
        if name not in self.with_identity:
            self.with_identity.add(name)
            self._run([f"ALTER TABLE {name} ADD PRIMARY KEY (id)"])


@pytest.mark.parametrize("number", [0, 1, *(pytest.param(n, marks=pytest.mark.full) for n in range(2, 40))])
def test_a_table_made_in_the_stream_is_the_source_s_or_held(database: Database, tmp_path: Path, number: int) -> None:
    """Looks at the catalog and compactions come anywhere between the statements."""
    chance = random.Random(SEED + number)
    database.execute("CREATE TABLE first (id serial PRIMARY KEY, v int)", "CREATE PUBLICATION shop FOR ALL TABLES")
    drained = Drained(database, tmp_path / "lake")
    drained.begin()
    lake, tables = ModelledLake(drained), Tables(database, chance)
    for _ in range(4):
        for _ in range(chance.randrange(1, 12)):
            tables.step()
            if chance.random() < 0.25:
                drained.drain()
                tables.done.append("-- drained")
                if chance.random() < 0.5:
                    lake.compact(chance.choice([1, 1000]))
                    tables.done.append("-- compacted")
        for last in (False, True):
            database.execute("INSERT INTO first (v) VALUES (1)")
            drained.drain()
            if last or chance.random() < 0.5:
                lake.compact(chance.choice([1, 1000]))
        tables.done.append("-- settled")
        difference = lake.difference()
        assert not difference, f"LAKEPROOF_SEED={SEED}, {number}: {difference}, {tables.done}"
