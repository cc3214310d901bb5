"""A table under random DDL among random changes of its rows; what it has is known from what was done to it.

What becomes of it in the landing and in the lake is for the tests that use it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import psycopg
from psycopg.sql import SQL, Composed, Identifier, Literal
from typing_extensions import LiteralString

from tests.support.servers.fix_postgres import Database

_TYPES: dict[LiteralString, LiteralString] = {
    "int2": "int4",
    "int4": "int8",
    "float4": "float8",
    "numeric(8,2)": "numeric(12,2)",
    "text": "text",
}
_VALUES: dict[LiteralString, LiteralString] = {
    "int2": "{n}",
    "int4": "{n}",
    "int8": "{n}",
    "float4": "{n} + 0.5",
    "float8": "{n} / 3.0",
    "text": "'t' || {n}",
}
_VALUES |= {"numeric(8,2)": "{n} / 7.0", "numeric(12,2)": "{n} + 0.2"}


_WAYS = ("add", "add", "default", "drop", "rename", "widen", "again")
# A widening writes the table anew: nobody can tell that from another rewriting if columns were altered or came as well.
_APART: tuple[tuple[str, ...], ...] = (("add", "add", "default", "drop", "rename", "again"), ("widen", "widen", "drop"))
# Types of a column that may be another one, which was renamed and widened meanwhile.
_FAMILIES = {"int2": "int", "int4": "int", "int8": "int", "float4": "float", "float8": "float"}


class Altering:
    """A table whose columns come, go and change; its contents follow from the statements run. `bag`: without a key."""

    def __init__(self, database: Database, name: str, chance: random.Random, *, bag: bool) -> None:
        self.table = Identifier(name)
        self.chance = chance
        self.bag = bag
        self.ways: tuple[str, ...] = _WAYS
        # The kinds of columns that may still be added; None if it does not matter whether columns can be distinguished.
        self.unspent: set[str] | None = None
        # The columns that were added since, in order, the kinds of all that were, and whether older or fresh ones went.
        self.fresh: list[str] = []
        self.added: set[str] = set()
        self.went: set[str] = set()
        self.columns: dict[str, LiteralString] = {"a": "int2", "b": "text", "c": "numeric(8,2)"}
        self.names = 0
        self.rows = 0
        listed = SQL(", ").join(SQL("{} {}").format(Identifier(c), _sql(t)) for c, t in self.columns.items())
        key = SQL("") if bag else SQL(" PRIMARY KEY")
        database.execute(SQL("CREATE TABLE {} (id int{}, {})").format(self.table, key, listed))
        if bag:
            database.execute(SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(self.table))

    def apart(self) -> None:
        """Until the next reading of the catalog, allow only changes that can be distinguished."""
        self.ways, self.unspent = self.chance.choice(_APART), {_family(kind) for kind in _TYPES}
        self.fresh, self.added, self.went = [], set(), set()

    def step(
        self, cursor: psycopg.Cursor[tuple[object, ...]], seen: Callable[[psycopg.Cursor[tuple[object, ...]]], None]
    ) -> None:
        """A transaction: rows, and often DDL before, between or after them. `seen` is called after each change of rows."""
        with cursor.connection.transaction():
            for _ in range(self.chance.randrange(1, 5)):
                if self.chance.random() < 0.3:
                    cursor.execute(self._ddl())
                cursor.execute(self._dml())
                seen(cursor)

    def touch(self, cursor: psycopg.Cursor[tuple[object, ...]]) -> None:
        """Insert a row, so that the newest schema is sent."""
        cursor.execute(self._insert())

    def _ddl(self) -> Composed:
        way = self.chance.choice(self.ways)
        kinds = self._kinds()
        able = [
            n
            for n, kind in self.columns.items()
            if self.unspent is None or (kind in _FAMILIES and kind != _TYPES.get(kind, kind))
        ]
        if (
            (way in ("add", "default", "again") and not kinds)
            or (way == "widen" and not able)
            or (not self.columns and way != "add")
        ):
            return SQL("COMMENT ON TABLE {} IS 'altered'").format(self.table)
        if self.unspent is not None and way in ("drop", "again"):
            able = [n for n in self.columns if self._may_go(n)]
        elif way != "widen":
            able = list(self.columns)
        name = self.chance.choice(able) if able else ""
        if not name and way not in ("add", "default"):
            return SQL("COMMENT ON TABLE {} IS 'altered'").format(self.table)
        if way in ("add", "default"):
            self.names += 1
            return self._add(f"x{self.names}", kinds, default=way == "default")
        if way in ("drop", "again"):
            gone = self.columns.pop(name)
            if self.unspent is not None and name in self.fresh:
                # What came and went could be any column that is added behind it.
                self.fresh.remove(name)
                self.unspent.clear()
                self.went.add("fresh")
                kinds = []
            elif self.unspent is not None:
                # One of its kind that came behind it could be called as it was.
                self.unspent.discard(_family(gone))
                self.went.add("older")
            dropped = SQL("ALTER TABLE {} DROP {}").format(self.table, Identifier(name))
            others = [kind for kind in kinds if self.unspent is None or _family(kind) != _family(gone)]
            return (
                dropped + SQL("; ") + self._add(name, others, default=False) if way == "again" and others else dropped
            )
        if way == "rename":
            self.names += 1
            self.columns = {(f"y{self.names}" if c == name else c): t for c, t in self.columns.items()}
            renamed = Identifier(f"y{self.names}")
            self.fresh = [f"y{self.names}" if c == name else c for c in self.fresh]
            return SQL("ALTER TABLE {} RENAME {} TO {}").format(self.table, Identifier(name), renamed)
        self.columns[name] = _TYPES.get(self.columns[name], self.columns[name])
        return SQL("ALTER TABLE {} ALTER {} TYPE {}").format(self.table, Identifier(name), _sql(self.columns[name]))

    def _kinds(self) -> list[LiteralString]:
        """Return the kinds that a new column may have."""
        return [kind for kind in _TYPES if self.unspent is None or _family(kind) in self.unspent]

    def _may_go(self, name: str) -> bool:
        """True if no other column can be taken for it, or it for another one, when it is dropped."""
        if name in self.fresh:
            return name == self.fresh[-1] and "older" not in self.went
        return _family(self.columns[name]) not in self.added and "fresh" not in self.went

    def _add(self, name: str, kinds: list[LiteralString], *, default: bool) -> Composed:
        kind = self.columns[name] = self.chance.choice(kinds)
        self.fresh.append(name)
        if self.unspent is not None:
            self.unspent.remove(_family(kind))
            self.added.add(_family(kind))
        given = SQL(" DEFAULT {}").format(self._value(kind)) if default else SQL("")
        return SQL("ALTER TABLE {} ADD {} {}{}").format(self.table, Identifier(name), _sql(kind), given)

    def _dml(self) -> Composed:
        way = self.chance.random()
        row = SQL("id = {}").format(Literal(self.chance.randrange(max(1, self.rows))))
        if way < 0.5 or not self.columns:
            return self._insert()
        if way < 0.8:
            name, kind = self.chance.choice(list(self.columns.items()))
            change = SQL("UPDATE {} SET {} = {} WHERE ").format(self.table, Identifier(name), self._value(kind))
            return change + row
        return SQL("DELETE FROM {} WHERE ").format(self.table) + row

    def _insert(self) -> Composed:
        self.rows += 1
        names = SQL(", ").join(map(Identifier, ["id", *self.columns]))
        values = SQL(", ").join([Literal(self.rows), *map(self._value, self.columns.values())])
        return SQL("INSERT INTO {} ({}) VALUES ({})").format(self.table, names, values)

    def _value(self, kind: LiteralString) -> SQL | Composed:
        if self.chance.random() < 0.2:
            return SQL("NULL")
        return SQL(_VALUES[kind]).format(n=Literal(self.chance.randrange(100)))


def _family(kind: str) -> str:
    return _FAMILIES.get(kind, kind.partition("(")[0])


def _sql(text: LiteralString) -> SQL:
    # From the tables above, and numbers.
    return SQL(text)
