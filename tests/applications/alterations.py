"""Random DDL on the tables of any schema, each with what it may cost: nothing, or a copy of the tables that it names.

Rows are for `mutator.py`. What PostgreSQL refuses (a view that needs the column, a lock) is not done.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any

import psycopg

from lakeproof.names import TableName
from tests.applications.mutator import Mutator
from tests.applications.source_tables import SourceColumn, SourceTable, quoted

IN_PLACE, COPY = "in place", "copy"
_KINDS = (
    "int",
    "smallint",
    "bigint",
    "text",
    "varchar(20)",
    "jsonb",
    "numeric(8,2)",
    "boolean",
    "text[]",
    "real",
    "money",
)
_WIDER = {"smallint": "integer", "integer": "bigint", "real": "double precision", "numeric(8,2)": "numeric(12,2)"}
_WIDER |= {"varchar(20)": "varchar(60)", "character varying(20)": "text", "character varying(60)": "text"}
_DEFAULTS = {"int": "7", "smallint": "7", "bigint": "7", "text": "'d'", "varchar(20)": "'d'", "jsonb": "'{}'"}
_DEFAULTS |= {"numeric(8,2)": "1.5", "boolean": "true", "text[]": "'{a}'", "real": "0.5", "money": "1"}
_PARTITIONS = """
SELECT n.nspname, c.relname, p.relname, pn.nspname, pg_get_expr(c.relpartbound, c.oid)
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class p ON p.oid = i.inhparent JOIN pg_namespace pn ON pn.oid = p.relnamespace
WHERE c.relispartition AND c.relkind = 'r' AND NOT p.relispartition ORDER BY 1, 2
"""
# A table that takes the name of one that the lake has is compared with it, rows get a default, a range has several schemas.
NEEDS_SPARK = ("old name", "recreate", "add 2", "amid rows", "create 2")
Statements = Sequence[str]


class Alterations:
    """DDL by a seed; `expected` has what was done to each table since it was last emptied."""

    def __init__(self, mutator: Mutator, seed: int, without: Sequence[str] = ()) -> None:
        self.mutator, self.rng = mutator, random.Random(seed + 1)
        self.expected: dict[TableName, list[str]] = defaultdict(list)
        self.done: list[str] = []
        self.serial = 0
        self._detached: list[tuple[str, str, str, TableName]] = []
        every: dict[str, Callable[[SourceTable], Statements]] = {
            "add": self._add, "add 2": self._add_filled, "drop": self._drop, "rename": self._rename, "widen": self._widen,
            "amid rows": self._amid_rows, "harmless": self._harmless, "harmless 2": self._harmless, "enum": self._enum,
            "create": self._create, "create 2": self._create_filled, "drop table": self._drop_table, "retype": self._retype,
            "detach": self._detach, "attach": self._attach, "cut partition": self._cut_partition, "new name": self._new_name,
            "old name": self._old_name, "exchange": self._exchange, "unlogged": self._unlogged, "recreate": self._recreate,
        }  # fmt: skip
        self._ways = [way for name, way in every.items() if name not in without]

    def alter(self, tables: Collection[TableName] = ()) -> None:
        """Do one thing to one table, one of `tables` if there are any; what the server refuses was not tried."""
        if self.rng.random() < 0.7:
            self.mutator.settle()
        table = self.rng.choice([t for t in self.mutator.tables if not tables or t.name in tables])
        before = {name: list(kinds) for name, kinds in self.expected.items()}
        statements = self.rng.choice(self._ways)(table)
        executed = list[str]()
        with psycopg.connect(self.mutator.database.dsn, autocommit=True, options="-c lock_timeout=200ms") as connection:
            try:
                for statement in statements:
                    connection.execute(statement.encode())
                    executed.append(statement)
            except psycopg.Error as error:
                self.mutator.refused[f"DDL {type(error).__name__}"] += 1
                if isinstance(error, psycopg.errors.SyntaxError):
                    raise
                if not executed or statements[0] == "BEGIN":
                    self.expected = defaultdict(list, before)
                else:
                    # What came before it was done, as the first of three renames.
                    self._partly_done(executed)
                return
        self.done += statements
        self.mutator.reload()

    def _partly_done(self, statements: Statements) -> None:
        existed = {table.name for table in self.mutator.tables}
        self.done += statements
        self.mutator.reload()
        for table in self.mutator.tables:
            if table.name not in existed:
                self._expect(table, COPY)

    def may_wait(self, table: TableName) -> bool:
        """True if the table may be held: something needs a copy, or several things can't be distinguished."""
        kinds = self.expected.get(table, [])
        return COPY in kinds or len(kinds) > 1

    def _expect(self, table: SourceTable | TableName, kind: str) -> None:
        self.expected[table if isinstance(table, TableName) else table.name].append(kind)

    def _name(self, prefix: str) -> str:
        self.serial += 1
        return f"{prefix}{self.serial}"

    def _free(self, table: SourceTable) -> SourceColumn | None:
        return self.rng.choice(table.plain) if table.plain else None

    def _add(self, table: SourceTable) -> Statements:
        return [f"{self._added(table)} {self.rng.choice(_KINDS)}"]

    def _added(self, table: SourceTable) -> str:
        self._expect(table, IN_PLACE)
        return f"ALTER TABLE {table.sql} ADD {self._name('x')}"

    def _add_filled(self, table: SourceTable) -> Statements:
        kind = self.rng.choice(_KINDS)
        return [f"{self._added(table)} {kind} DEFAULT {_DEFAULTS[kind]}{self.rng.choice(('', ' NOT NULL'))}"]

    def _drop(self, table: SourceTable) -> Statements:
        column = self._free(table)
        if column is None or len(table.plain) < 3:
            return []
        self._expect(table, IN_PLACE)
        return [f"ALTER TABLE {table.sql} DROP {column.sql}"]

    def _rename(self, table: SourceTable) -> Statements:
        column = self.rng.choice(table.columns)
        self._expect(table, IN_PLACE)
        name = self._name("y") if self.rng.random() < 0.8 else self._name("y, odd ")
        return [f"ALTER TABLE {table.sql} RENAME {column.sql} TO {quoted(name)}"]

    def _widen(self, table: SourceTable) -> Statements:
        able = [c for c in (*table.plain, *table.key) if c.type_text in _WIDER and not c.partitions]
        if not able:
            return []
        column = self.rng.choice(able)
        self._expect(table, IN_PLACE)
        return [f"ALTER TABLE {table.sql} ALTER {column.sql} TYPE {_WIDER[column.type_text]}"]

    def _amid_rows(self, table: SourceTable) -> Statements:
        """Alter within a transaction that changes rows before and after."""
        if not table.key:
            return []
        way = self.rng.choice([self._add, self._add_filled, self._drop])
        touched = f"UPDATE {table.sql} SET {table.key[0].sql} = {table.key[0].sql}"
        done = way(table)
        return ["BEGIN", touched, *done, touched, "COMMIT"] if done else []

    def _harmless(self, table: SourceTable) -> Statements:
        column, name = self._free(table), self._name("i")
        if column is None:
            return []
        statements = [
            f"CREATE INDEX {name} ON {table.sql} USING hash (({column.sql}::text))",
            f"ANALYZE {table.sql}",
            f"COMMENT ON TABLE {table.sql} IS '{name}'",
            f"ALTER TABLE {table.sql} ALTER {column.sql} SET STATISTICS 50",
            f"ALTER TABLE {table.sql} ALTER {column.sql} DROP DEFAULT",
            f"GRANT SELECT ON {table.sql} TO public",
            f"CREATE VIEW shown_{name} AS SELECT {table.key[0].sql if table.key else '1'} FROM {table.sql}",
            f"ALTER TABLE {table.sql} ADD CONSTRAINT {name} CHECK ({column.sql} IS NULL OR true)",
        ]
        if not table.partitioned:
            statements += [f"VACUUM FULL {table.sql}", f"ALTER TABLE {table.sql} SET (fillfactor = 70)"]
        return [self.rng.choice(statements)]

    def _enum(self, table: SourceTable) -> Statements:
        names = {self.mutator.values.base(c.type_oid): c for c in table.columns}
        for column in names.values():
            if self.mutator.values.is_enum(column.type_oid):
                return [f"ALTER TYPE {column.type_text} ADD VALUE '{self._name('e')}'"]
        return []

    def _create(self, _table: SourceTable) -> Statements:
        name = self._name("made_")
        self._expect(TableName("public", name), IN_PLACE)
        return [f"CREATE TABLE {name} (id int PRIMARY KEY, v text, w {self.rng.choice(_KINDS)})"]

    def _create_filled(self, table: SourceTable) -> Statements:
        """Its rows come before its key does.

        The key writes its columns' lines in the catalog again: if it has all columns, nothing shows that no root was above.
        """
        if not table.key:
            return []
        name, listed = self._name("made_"), ", ".join(c.sql for c in table.key)
        self._expect(TableName("public", name), COPY if len(table.key) == len(table.columns) else IN_PLACE)
        statements = [
            f"CREATE TABLE {name} AS SELECT * FROM {table.sql}",
            f"ALTER TABLE {name} ADD PRIMARY KEY ({listed})",
        ]
        return ["BEGIN", *statements, "COMMIT"]

    def _own(self) -> SourceTable | None:
        own = [t for t in self.mutator.tables if t.name.name.startswith("made_")]
        return self.rng.choice(own) if own else None

    def _drop_table(self, _table: SourceTable) -> Statements:
        own = self._own()
        return [f"DROP TABLE {own.sql}"] if own else []

    def _retype(self, table: SourceTable) -> Statements:
        column = self._free(table)
        if column is None:
            return []
        self._expect(table, COPY)
        return [f"ALTER TABLE {table.sql} ALTER {column.sql} TYPE text USING md5({column.sql}::text)"]

    def _partition(self) -> tuple[str, str, str, TableName, TableName] | None:
        rows: list[tuple[Any, ...]] = self.mutator.database.rows(_PARTITIONS)
        if not rows:
            return None
        schema, name, root, root_schema, bound = self.rng.choice(rows)
        root_name = TableName(root_schema, root)
        return quoted(schema, name), quoted(root_schema, root), bound, root_name, TableName(schema, name)

    def _detach(self, _table: SourceTable) -> Statements:
        chosen = self._partition()
        if chosen is None:
            return []
        name, root, bound, root_name, own = chosen
        self._expect(root_name, COPY)
        self._expect(own, COPY)
        self._detached.append((name, root, bound, root_name))
        return [f"ALTER TABLE {root} DETACH PARTITION {name}"]

    def _attach(self, _table: SourceTable) -> Statements:
        if not self._detached:
            return []
        name, root, bound, root_name = self._detached.pop(self.rng.randrange(len(self._detached)))
        self._expect(root_name, COPY)
        return [f"ALTER TABLE {root} ATTACH PARTITION {name} {bound}"]

    def _cut_partition(self, _table: SourceTable) -> Statements:
        chosen = self._partition()
        if chosen is None:
            return []
        self._expect(chosen[3], COPY)
        return [f"{self.rng.choice(('TRUNCATE', 'VACUUM FULL'))} {chosen[0]}"]

    def _renamed(self, table: SourceTable, name: str) -> str:
        self._expect(table, COPY)
        self._expect(TableName(table.name.schema, name), COPY)
        return f"ALTER TABLE {table.sql} RENAME TO {name}"

    def _new_name(self, table: SourceTable) -> Statements:
        return [self._renamed(table, self._name("renamed_"))]

    def _old_name(self, table: SourceTable) -> Statements:
        """Rename a table, and give a new one its old name."""
        if table.partitioned:
            return []
        name = self._name("renamed_")
        new = quoted(table.name.schema, name)
        like = f"CREATE TABLE {table.sql} (LIKE {new} INCLUDING ALL)"
        fill = f"INSERT INTO {table.sql} OVERRIDING SYSTEM VALUE SELECT * FROM {new} LIMIT 3"
        generated = any(c.generated for c in table.columns)
        whole = [self._renamed(table, name), like, *([] if generated else [fill])]
        return ["BEGIN", *whole, "COMMIT"] if self.rng.random() < 0.5 else whole

    def _exchange(self, table: SourceTable) -> Statements:
        """Let two tables exchange their names."""
        other = self.rng.choice(self.mutator.tables)
        if other.name.schema != table.name.schema or other is table:
            return []
        schema, aside = table.name.schema, self._name("aside_")
        self._expect(table, COPY)
        self._expect(other, COPY)
        return [
            f"ALTER TABLE {table.sql} RENAME TO {aside}",
            f"ALTER TABLE {other.sql} RENAME TO {quoted(table.name.name)}",
            f"ALTER TABLE {quoted(schema, aside)} RENAME TO {quoted(other.name.name)}",
        ]

    def _unlogged(self, _table: SourceTable) -> Statements:
        own = self._own()
        if own is None:
            return []
        self._expect(own, COPY)
        return [f"ALTER TABLE {own.sql} SET {self.rng.choice(('LOGGED', 'UNLOGGED'))}"]

    def _recreate(self, _table: SourceTable) -> Statements:
        """Drop a table, and make another one of its name."""
        own = self._own()
        if own is None:
            return []
        self._expect(own, COPY)
        make = [
            f"CREATE TABLE {own.sql} (id text PRIMARY KEY, n int)",
            f"INSERT INTO {own.sql} VALUES ('a', 1), ('b', 2)",
        ]
        return ["BEGIN", f"DROP TABLE {own.sql}", *make, "COMMIT"]
