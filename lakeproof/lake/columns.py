"""Names of a table's columns in the lake, from its schema version alone: all columns, and those of its key.

Expressions and frames belong to `lakeproof.lake.rows`: Spark is not imported here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lakeproof.hidden_columns import COMMIT_NUMBER, COMMIT_TIME, DUP, FROM, KEY, LSN, OP, ORD, SEQ, TEXT, UNCHANGED, XID
from lakeproof.landing.segments.file_columns import STATISTICS_COLUMNS, file_names
from lakeproof.names import Layer
from lakeproof.schema import REFUSED_IN_NAMES, Identity, SchemaVersion, lake_names
from lakeproof.values.exact_kinds import FIXED_SIZE_KINDS, needs_key_text
from lakeproof.values.types import LAKE_TYPES, spark_type

# The types for which Delta keeps the least and greatest value.
_BOUNDED = frozenset(spark for spark, lake_type in LAKE_TYPES.items() if lake_type.bounded)
_HIDDEN_TYPES = {
    ORD: "bigint",
    LSN: "bigint",
    SEQ: "bigint",
    OP: "string",
    XID: "bigint",
    COMMIT_TIME: "timestamp",
    COMMIT_NUMBER: "bigint",
    TEXT: "string",
    KEY: "string",
    DUP: "bigint",
    FROM: "string",
    UNCHANGED: "array<smallint>",
}


def in_lake(version: SchemaVersion) -> SchemaVersion:
    """Return the same schema version under the lake's column names; equal to `version` in nearly every case."""
    names = lake_names(version.columns)
    if all(old == new for old, new in names.items()):
        return version
    columns = tuple(replace(c, name=names[c.name]) for c in version.columns)
    return replace(version, columns=columns, key=tuple(names[k] for k in version.key))


def column_names(schema: SchemaVersion) -> list[str]:
    """The names of the table's own columns, in order."""
    return [c.name for c in schema.columns]


def has_old_rows(schema: SchemaVersion) -> bool:
    """True if updates and deletes bring the whole old row (identity FULL)."""
    return schema.identity is Identity.FULL


def keeps_key(schema: SchemaVersion) -> bool:
    """True if current and history have `_lp_key` filled: bags, and keys that Spark does not compare exactly."""
    return schema.is_bag or needs_key_text(schema)


def key_may_be_null(schema: SchemaVersion) -> bool:
    """True if NULL is a key value like any other: a configured key may have it."""
    return has_old_rows(schema) and not keeps_key(schema)


def merge_key(schema: SchemaVersion) -> tuple[str, ...]:
    """The columns of current that tell its rows apart."""
    if schema.is_bag:
        return (KEY, DUP)
    return (KEY,) if needs_key_text(schema) else schema.key


def same_key_columns(old: SchemaVersion, new: SchemaVersion) -> bool:
    """True if rows of the two schemas have the same key: the same columns, of the same types."""
    if old.is_bag or new.is_bag:
        return False
    keys = []
    for schema in (old, new):
        columns = {c.name: c for c in schema.columns}
        keys.append([(columns[k].attnum or k, spark_type(columns[k])) for k in schema.key])
    return keys[0] == keys[1] and needs_key_text(old) == needs_key_text(new)


def large_columns(schema: SchemaVersion) -> list[int]:
    """The ordinals of the columns whose values may be stored out of line, so that an update may leave them out."""
    return [i for i, c in enumerate(schema.columns) if c.kind not in FIXED_SIZE_KINDS]


def current_columns(schema: SchemaVersion) -> list[str]:
    """The columns of the current table, in order."""
    names = [*column_names(schema), TEXT]
    if keeps_key(schema):
        names.append(KEY)
    if schema.is_bag:
        names.append(DUP)
    if large_columns(schema):
        names += [FROM] if schema.is_bag else [ORD, FROM]
    return names


def history_columns(schema: SchemaVersion) -> list[str]:
    """The columns of the history table, in order."""
    return [*column_names(schema), ORD, LSN, SEQ, OP, XID, COMMIT_TIME, TEXT, KEY, FROM, COMMIT_NUMBER]


def layer_columns(schema: SchemaVersion, layer: Layer) -> list[str]:
    """The columns of one of the two, in order."""
    return history_columns(schema) if layer == "history" else current_columns(schema)


def lake_types(schema: SchemaVersion, names: Iterable[str]) -> dict[str, str]:
    """Return the Spark types of columns of current or history, in this order."""
    types = {c.name: spark_type(c) for c in schema.columns} | _HIDDEN_TYPES
    return {name: types[name] for name in names}


def layer_statistics(schema: SchemaVersion, layer: Layer) -> tuple[str, ...]:
    """Return the columns by which files of one of the two are pruned: of history a change's position, time and key.

    Delta would take the first 32 columns, and history's hidden ones are last. Of current none if Delta's choice includes the
    key; else the key, then the columns in order.
    """
    if layer == "history":
        return (ORD, LSN, COMMIT_TIME, *_bounded(schema, schema.key))
    names = column_names(schema)
    if all(k in names[:STATISTICS_COLUMNS] for k in schema.key):
        return ()
    others = [n for n in names if n not in schema.key]
    return _bounded(schema, [*schema.key, *others])[:STATISTICS_COLUMNS]


def _bounded(schema: SchemaVersion, names: Iterable[str]) -> tuple[str, ...]:
    types = {c.name: spark_type(c) for c in schema.columns}
    return tuple(n for n in names if types[n] in _BOUNDED or types[n].startswith("decimal"))


def landing_schema(schema: SchemaVersion, hidden: Iterable[str]) -> str:
    """The DDL of a landing or snapshot file: `hidden` columns, then the table's own."""
    own = zip(file_names(schema), schema.columns, strict=True)
    return ", ".join([*(f"{n} {_HIDDEN_TYPES[n]}" for n in hidden), *(f"{quoted(n)} {spark_type(c)}" for n, c in own)])


def placed(schema: SchemaVersion) -> list[str]:
    """Return the columns of current, and `_lp_ord` if it is not among them."""
    names = current_columns(schema)
    return names if ORD in names else [*names, ORD]


def needs_mapping(names: Iterable[str]) -> bool:
    """True if a name has a character that Parquet refuses, so that the Delta table needs column mapping."""
    return any(not REFUSED_IN_NAMES.isdisjoint(n) for n in names)


def quoted(name: str) -> str:
    """Return a column's name as Spark SQL reads it."""
    return "`" + name.replace("`", "``") + "`"
