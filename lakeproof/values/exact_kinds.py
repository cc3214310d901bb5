"""Facts about the kinds' exact forms, and what follows from them for keys, without Spark.

`lakeproof.lake.rows.exact` builds the exact forms with Spark.
"""

from __future__ import annotations

from lakeproof.schema import Column, SchemaVersion
from lakeproof.values.types import KINDS, precision_scale

_STRINGS = frozenset({"text", "bpchar", "varchar", "name", "uuid", "enum", "exact_text"})


# Kinds whose lake column holds every possible value: `_lp_text` never has one of theirs.
WHOLE_KINDS = _STRINGS | {"bool", "int2", "int4", "int8", "float4", "float8", "bytea"}


# Kinds that are typed in the lake, and whose texts are never empty and never contain END; a sized numeric is one too.
_ENDED_KINDS = WHOLE_KINDS - _STRINGS | {"date", "timestamp", "timestamptz"}


_WHOLE_NUMBERS = frozenset({"int2", "int4", "int8"})


def is_ended(column: Column) -> bool:
    """True if `END` ends the column's value in a row, instead of its number of bytes preceding it."""
    return column.kind in _ENDED_KINDS or (column.kind == "numeric" and precision_scale(column.typmod) is not None)


def needs_key_text(version: SchemaVersion) -> bool:
    """True if Spark does not compare a column of the key exactly, so that `_lp_key` holds the key's text."""
    return any(not KINDS[c.kind].exact for c in key_columns(version))


def key_columns(version: SchemaVersion) -> list[Column]:
    """Return the columns of the key, in the key's order; empty for a bag."""
    by_name = {c.name: c for c in version.columns}
    return [by_name[name] for name in version.key]


def whole_key(version: SchemaVersion) -> Column | None:
    """Return the key if it is one whole number, which is its own bucket, without a digest."""
    columns = key_columns(version)
    return columns[0] if len(columns) == 1 and columns[0].kind in _WHOLE_NUMBERS else None
