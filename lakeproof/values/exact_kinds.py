"""Which kinds have an exact form of what sort, and what of a key follows from that: facts without Spark."""

from __future__ import annotations

from lakeproof.schema import Column, SchemaVersion
from lakeproof.values.types import KINDS, precision_scale

_STRINGS = frozenset({"text", "bpchar", "varchar", "name", "uuid", "enum", "exact_text"})


# Kinds whose lake column holds every value there can be: `_lp_text` never speaks for them.
WHOLE_KINDS = _STRINGS | {"bool", "int2", "int4", "int8", "float4", "float8", "bytea"}


# Kinds that are typed in the lake and whose texts are never empty and have no END in them; a sized numeric is one too.
_ENDED_KINDS = WHOLE_KINDS - _STRINGS | {"date", "timestamp", "timestamptz"}


_WHOLE_NUMBERS = frozenset({"int2", "int4", "int8"})


def is_ended(column: Column) -> bool:
    """Whether the column's value is ended by `END` in a row, not preceded by its number of octets."""
    return column.kind in _ENDED_KINDS or (column.kind == "numeric" and precision_scale(column.typmod) is not None)


def needs_key_text(version: SchemaVersion) -> bool:
    """Whether the key has a column that Spark does not compare exactly, so that `_lp_key` holds the key's text."""
    return any(not KINDS[c.kind].exact for c in key_columns(version))


def key_columns(version: SchemaVersion) -> list[Column]:
    """The columns of the key, in the key's order; empty for a bag."""
    by_name = {c.name: c for c in version.columns}
    return [by_name[name] for name in version.key]


def whole_key(version: SchemaVersion) -> Column | None:
    """The key, where it is one whole number: that is its own bucket, without a digest."""
    columns = key_columns(version)
    return columns[0] if len(columns) == 1 and columns[0].kind in _WHOLE_NUMBERS else None
