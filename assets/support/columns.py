"""The columns of a table in each layer, and what each comes from, as Dagster's column schema and column lineage.

Reading schemas does not belong here (`assets.catalog`), nor a view's SQL (`view_lineage.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import dagster as dg

from assets.support.keys import Layer, table_key
from lakeproof.hidden_columns import COMMIT_NUMBER, COMMIT_TIME, DUP, FROM, KEY, LSN, OP, ORD, SEQ, TEXT, XID
from lakeproof.lake.columns import current_columns, history_columns, in_lake, lake_types
from lakeproof.landing.segments.file_columns import file_names
from lakeproof.names import TableName
from lakeproof.postgres.catalog.descriptions import ColumnDescription, TableDescription
from lakeproof.schema import Column, SchemaVersion, lake_names
from lakeproof.values.types import precision_scale, spark_type

if TYPE_CHECKING:
    from assets.support.view_lineage import ViewColumn

# The tag of a column that has its type in PostgreSQL.
POSTGRES_TAG = "postgres"
_LANDED = (Layer.SNAPSHOT, Layer.CHANGES)
_UNKNOWN_TYPE = "unknown"
# Bytes that PostgreSQL adds to the length in the modifier of a text type.
_TYPMOD_HEADER = 4
_HIDDEN = {
    ORD: "lakeproof: the order in which the table's rows became true",
    LSN: "lakeproof: the LSN of the commit",
    SEQ: "lakeproof: the change's number in its transaction",
    OP: "lakeproof: insert, before, update, delete, truncate, snapshot, correct_delete, correct_insert, gap or reset",
    XID: "lakeproof: the transaction's number",
    COMMIT_TIME: "lakeproof: the time of the commit",
    COMMIT_NUMBER: "lakeproof: PostgreSQL's number of a commit time that no calendar holds",
    TEXT: "lakeproof: PostgreSQL's text of values that the column's type does not hold, as JSON",
    KEY: "lakeproof: the exact text of the key, if it is not used as it is",
    DUP: "lakeproof: the difference between equal rows of a table without a key",
    FROM: "lakeproof: the rows that hold large values which the update did not send, as JSON",
}
_HIDDEN_IN_VIEWS = {KEY: "lakeproof: the digest of the row", DUP: "lakeproof: the difference between equal rows"}


def postgres_type(column: Column) -> str:
    """Return a column's type with its modifier, as far as the schema version has it: `numeric(12,2)`, `varchar(20)`."""
    pair = precision_scale(column.typmod)
    if pair is not None and column.type_name == "numeric":
        return f"numeric({pair[0]},{pair[1]})"
    if column.type_name in {"varchar", "bpchar"} and column.typmod > _TYPMOD_HEADER:
        return f"{column.type_name}({column.typmod - _TYPMOD_HEADER})"
    return column.type_name or _UNKNOWN_TYPE


def table_columns(
    layer: Layer, version: SchemaVersion, description: TableDescription | None = None
) -> dg.TableSchema | None:
    """Return the columns of a table in a layer; None for a layer that has no rows of the table."""
    described = {} if description is None else {column.name: column for column in description.columns}
    if layer is Layer.POSTGRES:
        return dg.TableSchema(
            columns=[
                _column(c, c.name, described.get(c.name), postgres_type(c), key=c.name in version.key, strict=True)
                for c in version.columns
            ]
        )
    if layer in _LANDED:
        names, hidden = dict(zip(version.columns, file_names(version), strict=True)), []
    elif layer in {Layer.HISTORY, Layer.CURRENT}:
        own = in_lake(version)
        names = {c: name.name for c, name in zip(version.columns, own.columns, strict=True)}
        every = history_columns(own) if layer is Layer.HISTORY else current_columns(own)
        hidden = [name for name in every if name not in names.values()]
    else:
        return None
    types = lake_types(in_lake(version), hidden)
    return dg.TableSchema(
        columns=[
            *(
                _column(c, names[c], described.get(c.name), key=c.name in version.key, strict=layer is Layer.CURRENT)
                for c in version.columns
            ),
            *(dg.TableColumn(name, types[name], _HIDDEN.get(name)) for name in hidden),
        ]
    )


def described_columns(description: TableDescription) -> dg.TableSchema:
    """Return the columns of a source's table that no cut has yet, as PostgreSQL has them."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(c.name, c.type, c.comment, dg.TableColumnConstraints(nullable=not c.not_null))
            for c in description.columns
        ]
    )


def _column(
    column: Column,
    name: str,
    described: ColumnDescription | None,
    shown_type: str | None = None,
    *,
    key: bool,
    strict: bool,
) -> dg.TableColumn:
    """Return a column; `strict` if the layer has no NULL where the source has none."""
    full = described.type if described is not None else postgres_type(column)
    tags = {} if shown_type is not None else {POSTGRES_TAG: full}
    not_null = key or (described is not None and described.not_null)
    return dg.TableColumn(
        name=name,
        type=spark_type(column) if shown_type is None else full,
        description=None if described is None else described.comment,
        constraints=dg.TableColumnConstraints(nullable=not (strict and not_null)),
        tags=tags | ({"key": ""} if key else {}),
    )


def table_lineage(layer: Layer, source: str, table: TableName, version: SchemaVersion) -> dg.TableColumnLineage | None:
    """Return the origin of each column in a layer, one to one; None for a layer without one."""
    landed = dict(zip(version.columns, file_names(version), strict=True))
    names = lake_names(version.columns)
    if layer in _LANDED:
        origins = {landed[c]: [(Layer.POSTGRES, c.name)] for c in version.columns}
    elif layer in {Layer.HISTORY, Layer.CURRENT}:
        origins = {names[c.name]: [(before, landed[c]) for before in _LANDED] for c in version.columns}
    else:
        return None
    return dg.TableColumnLineage(
        {
            name: [dg.TableColumnDep(table_key(before, source, table), column) for before, column in of]
            for name, of in origins.items()
        }
    )


def lake_column_types(version: SchemaVersion) -> dict[str, str]:
    """Return the Spark type of each of the table's own columns, by its name in the lake."""
    return {column.name: spark_type(column) for column in in_lake(version).columns}


def view_schema(columns: Iterable[ViewColumn], tables: Mapping[str, Mapping[str, str]]) -> dg.TableSchema:
    """Return the columns of a view that was never computed; the type of one that its query computes is not known."""

    def type_of(column: ViewColumn) -> str:
        if not column.is_copy or not column.origins:
            return _UNKNOWN_TYPE
        table, name = column.origins[0]
        return tables[table][name]

    return dg.TableSchema(columns=[dg.TableColumn(column.name, type_of(column)) for column in columns])


def stored_view_schema(types: Mapping[str, str]) -> dg.TableSchema:
    """Return the columns that a view's Delta table has, lakeproof's own among them."""
    return dg.TableSchema(
        columns=[dg.TableColumn(name, kind, _HIDDEN_IN_VIEWS.get(name)) for name, kind in types.items()]
    )


def view_lineage(columns: Iterable[ViewColumn], keys: Mapping[str, dg.AssetKey]) -> dg.TableColumnLineage:
    """Return the known origins of a view's columns; `keys` has the asset of each name in its SQL."""
    return dg.TableColumnLineage(
        {
            column.name: [dg.TableColumnDep(keys[table], name) for table, name in column.origins]
            for column in columns
            if column.origins
        }
    )
