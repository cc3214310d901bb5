"""The statements that make a publication what the configuration asks for, from what it is: a pure difference.

Every table is named with ONLY: without it PostgreSQL adds, and takes out, all tables that inherit from it. A partitioned
table stands for its partitions with ONLY too.

The configuration's wishes are in `wishes.py`; `lakeproof.postgres.publications` reads existing publications.

In a publication that `plan` did not make, tables and schemas are added and nothing else is done: what differs is a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from lakeproof.config.table_names import table_text
from lakeproof.names import TableName
from lakeproof.postgres.catalog.tables import identifier
from lakeproof.postgres.publications import FOLLOWS, MARK, Entry, Publication

SEND_GENERATED = SQL("ALTER PUBLICATION {} SET (publish_generated_columns = stored)")


@dataclass(frozen=True, slots=True)
class WantedEntry:
    """A table's part in a publication; the condition in any of `forms` means the same as that of `entry`."""

    entry: Entry = field(default_factory=Entry)
    forms: tuple[str, ...] = ()

    def is_met_by(self, actual: Entry) -> bool:
        """True if the publication has just this."""
        same_rows = actual.rows == self.entry.rows or actual.rows in self.forms
        return same_rows and actual.columns == self.entry.columns


@dataclass(frozen=True, slots=True)
class WantedPublication:
    """A publication as it is to be; `operations` is None if those that it has may stay.

    `paused` tables are taken out of any publication. `complete`: what is not among `tables` and `schemas` goes.
    """

    name: str
    operations: tuple[str, ...] | None
    tables: Mapping[TableName, WantedEntry]
    schemas: tuple[str, ...] = ()
    paused: frozenset[TableName] = frozenset()
    complete: bool = True


@dataclass(slots=True)
class Alterations:
    """The statements that alter one publication, in order; `added` and `removed` tables of it, and notes."""

    statements: list[Composed] = field(default_factory=list)
    added: list[TableName] = field(default_factory=list)
    removed: list[TableName] = field(default_factory=list)
    schemas: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


def creation(goal: WantedPublication, source: str, operations: tuple[str, ...], *, generated: bool) -> list[Composed]:
    """Return the statements that create a publication and mark it as ours; `operations` are none for all of them."""
    parts = [*_schemas(goal.schemas), *_tables(goal.tables.items())]
    which = SQL(" FOR {}").format(SQL(", ").join(parts)) if parts else SQL("").format()
    options: list[Composable] = [SQL("publish = {}").format(Literal(", ".join(operations)))] if operations else []
    options += [SQL("publish_via_partition_root = true")]
    options += [SQL("publish_generated_columns = stored")] if generated else []
    name = Identifier(goal.name)
    text = f"{FOLLOWS}{source}"
    return [
        SQL("CREATE PUBLICATION {}{} WITH ({})").format(name, which, SQL(", ").join(options)),
        SQL("COMMENT ON PUBLICATION {} IS {}").format(name, Literal(text)),
    ]


def alterations(goal: WantedPublication, actual: Publication, elsewhere: Iterable[TableName]) -> Alterations:
    """Return what makes `actual` what is the `goal`; tables `elsewhere` are published without a line of their own here."""
    done, name = Alterations(), Identifier(goal.name)
    differs = {t for t, part in goal.tables.items() if t in actual.entries and not part.is_met_by(actual.entries[t])}
    surplus = actual.entries.keys() - goal.tables.keys() if goal.complete else set()
    out = (differs | surplus) if actual.ours else set[TableName]()
    done.removed = sorted(out | (actual.entries.keys() & goal.paused))
    surplus_schemas = set(actual.schemas).difference(goal.schemas) if goal.complete and actual.ours else set[str]()
    stay = {table for table in elsewhere if table.schema not in surplus_schemas}
    absent = goal.tables.keys() - actual.entries.keys() - stay
    done.added = sorted(absent | (out & goal.tables.keys()))
    done.schemas = tuple(schema for schema in goal.schemas if schema not in actual.schemas)
    if done.removed:
        removed = SQL(", ").join(map(_table, done.removed))
        done.statements.append(SQL("ALTER PUBLICATION {} DROP TABLE {}").format(name, removed))
    if surplus_schemas:
        done.statements.append(
            SQL("ALTER PUBLICATION {} DROP {}").format(name, SQL(", ").join(_schemas(sorted(surplus_schemas))))
        )
    other_operations = goal.operations is not None and goal.operations != actual.operations
    if other_operations and actual.ours:
        value = Literal(", ".join(goal.operations or ()))
        done.statements.append(SQL("ALTER PUBLICATION {} SET (publish = {})").format(name, value))
    parts = [*_schemas(done.schemas), *_tables((t, goal.tables[t]) for t in done.added)]
    if parts:
        done.statements.append(SQL("ALTER PUBLICATION {} ADD {}").format(name, SQL(", ").join(parts)))
    if not actual.ours:
        done.notes += _left(goal, actual, differs, other_operations=other_operations)
    return done


def _left(
    goal: WantedPublication, actual: Publication, differs: Iterable[TableName], *, other_operations: bool
) -> Iterator[str]:
    """Yield what is left as it is in a publication that is not ours, though the configuration asks for something else."""
    left = [
        f"the rows or columns of {table_text(table)}"
        for table in sorted(differs)
        if goal.tables[table] != WantedEntry()
    ]
    left += [f"its operations ({', '.join(actual.operations)})"] if other_operations else []
    if left:
        yield (
            f"publication {goal.name} was not made by `lakeproof plan`, and is left as it is, though the configuration has"
            f" other: {'; '.join(left)}; to have it follow the configuration: "
            f"COMMENT ON PUBLICATION {goal.name} IS '{MARK}…'"
        )


def _schemas(names: Iterable[str]) -> list[Composed]:
    return [SQL("TABLES IN SCHEMA {}").format(Identifier(name)) for name in names]


def _tables(tables: Iterable[tuple[TableName, WantedEntry]]) -> list[Composed]:
    listed = [SQL("{}{}").format(_table(table), _part(goal.entry)) for table, goal in tables]
    return [SQL("TABLE {}").format(SQL(", ").join(listed))] if listed else []


def _part(entry: Entry) -> Composed:
    columns, condition = SQL("").format(), SQL("").format()
    if entry.columns is not None:
        columns = SQL(" ({})").format(SQL(", ").join(map(Identifier, entry.columns)))
    if entry.rows is not None:
        # In PostgreSQL's own words, which has read the configuration's.
        condition = SQL(" WHERE ({})").format(SQL(entry.rows))
    return columns + condition


def _table(table: TableName) -> Composed:
    return SQL("ONLY {}").format(identifier(table))
