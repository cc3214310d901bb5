"""The part of a source that is published: operations, whole schemas, and of single tables the rows and columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, model_validator

from lakeproof.config.section import Model
from lakeproof.config.table_names import TablePattern, table_text
from lakeproof.config.values import ColumnNames, Text, different
from lakeproof.names import TableName

Operation = Literal["insert", "update", "delete", "truncate"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)


def _operations(value: tuple[Operation, ...] | None) -> tuple[Operation, ...] | None:
    if value is None:
        return None
    if "insert" not in value:
        raise ValueError("must have insert: without it no row of a table reaches the lake")
    return tuple(operation for operation in OPERATIONS if operation in different(value))


def _condition(value: str | None) -> str | None:
    if value is not None and (not value.strip() or "\x00" in value):
        raise ValueError("must be a condition in SQL over the table's columns")
    return value


def _schema(value: str) -> str:
    if not value or "\x00" in value or value.startswith("pg_") or value == "information_schema":
        raise ValueError("is not the name of a schema with tables that send changes")
    return value


class TablePublication(Model):
    """The part of a table that `apply` publishes."""

    rows: Annotated[Text | None, AfterValidator(_condition)] = None
    """Which rows are published: a condition in SQL over the table's columns; none: all of them."""
    columns: ColumnNames = ()
    """The columns that are published; none named: all of them."""
    without: ColumnNames = ()
    """Or the columns that are not published."""

    @property
    def is_part(self) -> bool:
        """True if not all rows or columns are published."""
        return self.rows is not None or self.lists_columns

    @property
    def lists_columns(self) -> bool:
        """True if the table gets a column list."""
        return bool(self.columns or self.without)

    @model_validator(mode="after")
    def _one_list(self) -> TablePublication:
        if self.columns and self.without:
            raise ValueError("has both columns and without; one of them decides")
        return self


class SourcePublication(Model):
    """The publication's operations, and the schemas that it publishes whole."""

    publish: Annotated[tuple[Operation, ...] | None, AfterValidator(_operations)] = None
    """The operations that are published, `insert` among them; none: all four, and those of a publication that exists
    stay."""
    schemas: Annotated[tuple[Annotated[Text, AfterValidator(_schema)], ...], AfterValidator(different)] = ()
    """Schemas that `apply` publishes whole (`FOR TABLES IN SCHEMA`): later tables are published at once."""


def schema_patterns(schemas: object) -> tuple[TablePattern, ...]:
    """Return the patterns that whole schemas are, of what a file has under `schemas`; what is no list has none."""
    listed = schemas if isinstance(schemas, list) else []
    return tuple(TablePattern(schema, "*") for schema in listed if isinstance(schema, str))


def publication_mistakes(
    schemas: tuple[str, ...], exclude: tuple[TableName | TablePattern, ...], table: Mapping[TableName, TablePublication]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield what PostgreSQL refuses, or would ignore, in a publication of whole schemas: the keys, and the mistake."""
    for i, entry in enumerate(exclude):
        if entry.schema in schemas:
            text = f"can't leave anything out of schema {entry.schema}, which `schemas` publishes whole"
            yield ("exclude", i), f"{text}; write {entry.schema}.* under `tables` instead"
    for name, part in table.items():
        key = ("table", table_text(name))
        if schemas and part.lists_columns:
            text = "has a column list, which PostgreSQL refuses in a publication with whole schemas"
            yield key, f"{text}; name the schema's tables under `tables`, as {schemas[0]}.*"
        elif name.schema in schemas and part.rows is not None:
            text = f"has rows, which PostgreSQL ignores for a table of schema {name.schema}, which is published whole"
            yield key, f"{text}; write {name.schema}.* under `tables` instead of `schemas`"
