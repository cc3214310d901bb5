"""Facts about the kinds' exact forms, and what follows from them for keys, without Spark.

`lakeproof.lake.rows.columns` builds the exact forms with Spark.
"""

from __future__ import annotations

from lakeproof.schema import Column, SchemaVersion
from lakeproof.values.types import KINDS, Form, kind_of

# Ends a value in a row, of the kinds whose texts never have it.
END = "|"
# The form of NULL where octets precede a value. It also surrounds the form of a text and a value that contradict each other;
# no text of a kind with hidden texts begins with it.
NULL_FORM = "~"
# Kinds whose lake column holds every possible value: `_lp_text` never has one of theirs.
WHOLE_KINDS = frozenset(kind.name for kind in KINDS.values() if kind.holds_every_value)
# Kinds of whole numbers.
INTEGER_KINDS = frozenset(k.name for k in KINDS.values() if k.form is Form.WHOLE and k.element is None)
# Kinds whose values PostgreSQL never stores out of line (TOAST).
FIXED_SIZE_KINDS = frozenset(kind.name for kind in KINDS.values() if kind.fixed_size)


def is_ended(column: Column) -> bool:
    """True if `END` ends the column's value in a row, instead of its number of bytes preceding it."""
    # The texts of the typed scalars are never empty and never contain END.
    kind = kind_of(column)
    return kind.element is None and not kind.is_string


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
    return columns[0] if len(columns) == 1 and columns[0].kind in INTEGER_KINDS else None
