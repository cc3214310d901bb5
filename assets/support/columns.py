"""The columns of a table in each layer, and what each comes from, as Dagster's column schema and column lineage."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from assets.support.keys import Layer, table_key
from lakeproof.config.location import LakeLocation
from lakeproof.errors import LakeproofError
from lakeproof.hidden_columns import COMMIT_NUMBER, COMMIT_TIME, DUP, FROM, KEY, LSN, OP, ORD, SEQ, TEXT, XID
from lakeproof.lake.columns import current_columns, history_columns, in_lake, lake_types
from lakeproof.lake.delta.log.protocol import column_types
from lakeproof.landing.segments.file_columns import file_names
from lakeproof.names import TableName
from lakeproof.postgres.catalog.descriptions import TableDescription
from lakeproof.schema import Column, SchemaVersion
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.values.types import precision_scale, spark_type

if TYPE_CHECKING:
    from assets.support.view_lineage import ViewColumn

_NOT_NULL, _NULLABLE = dg.TableColumnConstraints(nullable=False), dg.TableColumnConstraints()
_log = logging.getLogger("lakeproof.dagster")
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


def _postgres_type(column: Column) -> str:
    """Return a column's type with its modifier, as far as the schema version has it: `numeric(12,2)`, `varchar(20)`."""
    pair = precision_scale(column.typmod)
    if pair is not None and column.type_name == "numeric":
        return f"numeric({pair[0]},{pair[1]})"
    if column.type_name in {"varchar", "bpchar"} and column.typmod > _TYPMOD_HEADER:
        return f"{column.type_name}({column.typmod - _TYPMOD_HEADER})"
    return column.type_name or "unknown"


def table_columns(version: SchemaVersion, description: TableDescription | None) -> dict[Layer, dg.TableSchema]:
    """Return the columns of a table in each layer that has its rows; NOT NULL in those that have no NULL either."""
    described = {} if description is None else {column.name: column for column in description.columns}
    own = in_lake(version)

    def column(c: Column, name: str, *, strict: bool, in_source: bool = False) -> dg.TableColumn:
        source, is_key = described.get(c.name), c.name in version.key
        full_type = _postgres_type(c) if source is None else source.type
        not_null = strict and (is_key or (source is not None and source.not_null))
        return dg.TableColumn(
            name,
            full_type if in_source else spark_type(c),
            None if source is None else source.comment,
            _NOT_NULL if not_null else _NULLABLE,
            ({} if in_source else {"postgres": full_type}) | ({"key": ""} if is_key else {}),
        )

    def in_lake_columns(every: Sequence[str], *, strict: bool) -> dg.TableSchema:
        names = [c.name for c in own.columns]
        hidden = lake_types(own, [name for name in every if name not in names])
        columns = [column(c, name, strict=strict) for c, name in zip(version.columns, names, strict=True)]
        return dg.TableSchema([*columns, *(dg.TableColumn(name, hidden[name], _HIDDEN.get(name)) for name in hidden)])

    files = zip(version.columns, file_names(version), strict=True)
    landed = dg.TableSchema([column(c, name, strict=False) for c, name in files])
    return {
        Layer.POSTGRES: dg.TableSchema([column(c, c.name, strict=True, in_source=True) for c in version.columns]),
        Layer.SNAPSHOT: landed,
        Layer.CHANGES: landed,
        Layer.HISTORY: in_lake_columns(history_columns(own), strict=False),
        Layer.CURRENT: in_lake_columns(current_columns(own), strict=True),
    }


def described_columns(description: TableDescription) -> dg.TableSchema:
    """Return the columns of a source's table that no cut has yet, as PostgreSQL has them."""
    return dg.TableSchema(
        [dg.TableColumn(c.name, c.type, c.comment, _NOT_NULL if c.not_null else _NULLABLE) for c in description.columns]
    )


def table_lineage(source: str, table: TableName, version: SchemaVersion) -> dict[Layer, dg.TableColumnLineage]:
    """Return the origin of each column in each layer that has one, one to one."""
    postgres = table_key(Layer.POSTGRES, source, table)
    keys = [table_key(layer, source, table) for layer in (Layer.SNAPSHOT, Layer.CHANGES)]
    columns = list(zip(version.columns, file_names(version), in_lake(version).columns, strict=True))
    landed = dg.TableColumnLineage({file: [dg.TableColumnDep(postgres, c.name)] for c, file, _ in columns})
    in_tables = dg.TableColumnLineage(
        {lake.name: [dg.TableColumnDep(key, file) for key in keys] for _, file, lake in columns}
    )
    return {Layer.SNAPSHOT: landed, Layer.CHANGES: landed, Layer.HISTORY: in_tables, Layer.CURRENT: in_tables}


def stored_columns(lake: LakeLocation, view: str, version: int | None = None) -> dg.TableSchema | None:
    """Return the columns of a view's table, lakeproof's own among them; None if it was never made or can't be read."""
    try:
        types = column_types(open_store(lake).url(LakePaths.view(view)), version)
    except (LakeproofError, OSError) as error:
        _log.warning("views.%s: its columns can't be read: %s", view, error)
        return None
    columns = [dg.TableColumn(name, kind, _HIDDEN_IN_VIEWS.get(name)) for name, kind in types.items()]
    return dg.TableSchema(columns) if columns else None


def view_lineage(columns: Iterable[ViewColumn], keys: Mapping[str, dg.AssetKey]) -> dg.TableColumnLineage:
    """Return the known origins of a view's columns; `keys` has the asset of each name in its SQL."""
    return dg.TableColumnLineage(
        {
            column.name: [dg.TableColumnDep(keys[table], name) for table, name in column.origins]
            for column in columns
            if column.origins
        }
    )
