"""An application whose ORM migrates its tables from zero, while some of them have rows: a mutator's, and backfills.

The migrations are those of `tests/support/workloads/migration_run.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import psycopg

from lakeproof.names import TableName
from tests.applications.mutator import Mutator
from tests.support.workloads.migration_run import Migrations

_USED = 0.3


class Migrated:
    """A run of migrations; between two of them rows of a part of the tables change."""

    def __init__(self, mutator: Mutator, seed: int, tables: int) -> None:
        self.mutator, self.chance = mutator, random.Random(seed + 2)
        self.migrations = Migrations(self.chance, tables)
        self._serial = 0

    def run(self) -> Iterator[None]:
        """Make one migration after the other, with rows in between."""
        for statements in self.migrations.run():
            self.mutator.settle()
            with psycopg.connect(self.mutator.database.dsn) as connection:
                for statement in statements:
                    self._step(connection, statement)
                if self.chance.random() < 0.1:
                    self._backfill(connection)
            self.mutator.reload()
            self._use()
            yield
        self.mutator.settle()

    def _step(self, connection: psycopg.Connection[tuple[object, ...]], statement: str) -> None:
        try:
            with connection.transaction():
                connection.execute(statement.encode())
        except (psycopg.errors.UniqueViolation, psycopg.errors.ProgramLimitExceeded):
            # Of rows that were there, twice or too large for an index: a person corrects them later.
            pass

    def _use(self) -> None:
        filled = self.migrations.filled
        for name in sorted(self.migrations.tables):
            if name not in filled and self.chance.random() < _USED / len(self.migrations.tables):
                filled.add(name)
        used = [t for t in self.mutator.tables if t.name in {TableName("public", name) for name in filled}]
        if used:
            self.mutator.ticks(15, used)

    def _backfill(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        """Add a column, fill it from the rows' own values, and require it, as data migrations do."""
        filled = sorted(self.migrations.filled & self.migrations.tables.keys())
        if not filled:
            return
        self._serial += 1
        table, column = self.chance.choice(filled), f"back{self._serial}"
        for statement in (
            f'ALTER TABLE "{table}" ADD COLUMN {column} varchar(40) NULL',
            f"UPDATE \"{table}\" SET {column} = 'n' || id WHERE {column} IS NULL",
            f"ALTER TABLE \"{table}\" ALTER COLUMN {column} SET DEFAULT 'n'",
        ):
            connection.execute(statement.encode())
            if self.chance.random() < 0.5:
                connection.commit()
