"""Rows of the simulated source: cells with exact texts, to Arrow, and in a form in which they compare exactly.

What happens to rows belongs to `simulated_source`.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame

from lakeproof.lake.read.arrow.open import Rows
from lakeproof.names import Oid, TableName
from lakeproof.schema import Column, Identity, SchemaVersion
from lakeproof.values.types import arrow_type


@dataclass(frozen=True, slots=True)
class Exact:
    """A value that its column's type can't hold, as PostgreSQL prints it."""

    text: str


Cell: TypeAlias = Any
Row: TypeAlias = tuple[Cell, ...]
_OIDS = {"int4": 23, "int8": 20, "text": 25, "numeric": 1700, "float8": 701, "exact_text": 3802, "timestamptz": 1184}


def schema(name: str, columns: Mapping[str, str], key: Sequence[str], identity: Identity, oid: int) -> SchemaVersion:
    """A schema version; a column's kind may carry a typmod (`numeric:10,2`)."""
    result = []
    for attnum, (column, kind) in enumerate(columns.items(), start=1):
        kind_name, _, size = kind.partition(":")
        precision, _, scale = size.partition(",")
        typmod = ((int(precision) << 16) | int(scale)) + 4 if size else -1
        result.append(Column(column, Oid(_OIDS[kind_name]), typmod, kind_name, kind_name, attnum, column in key))
    return SchemaVersion(TableName("app", name), Oid(oid), identity, tuple(result), tuple(key))


def column_array(column: Column, cells: Sequence[Cell]) -> pa.Array:
    """The column of a landing file."""
    return pa.array([None if isinstance(c, Exact) else c for c in cells], arrow_type(column))


def text_entries(version: SchemaVersion, row: Row) -> str | None:
    """`_lp_text` of a row."""
    actual = {str(c.attnum): cell.text for c, cell in zip(version.columns, row, strict=True) if isinstance(cell, Exact)}
    return json.dumps(actual, separators=(",", ":")) if actual else None


def canonical(row: Row) -> Row:
    """Cells that are equal exactly if the values are: floats by bits, everything else by its text."""
    return tuple(_canonical(c) for c in row)


def rows_of(rows: DataFrame | Rows, version: SchemaVersion) -> Counter[Row]:
    """The rows of a table of the lake, hidden columns included, in the same form."""
    return Counter(row_of(r, version) for r in _records(rows))


def images_of(history: DataFrame | Rows, version: SchemaVersion) -> Counter[tuple[str, Row]]:
    """History's after-images in the same form, with their op."""
    images = (r for r in _records(history) if r["_lp_op"] in {"insert", "update"})
    return Counter((r["_lp_op"], row_of(r, version)) for r in images)


def _records(rows: DataFrame | Rows) -> list[dict[str, Any]]:
    """Return rows that are read with Spark or without."""
    records: list[dict[str, Any]] = (rows.arrow() if isinstance(rows, Rows) else rows.toArrow()).to_pylist()
    return records


def row_of(record: Mapping[str, Any], version: SchemaVersion) -> Row:
    """Return a row of the lake, `_lp_text` included, in that form."""
    texts = json.loads(record["_lp_text"] or "{}")
    cells = []
    for column in version.columns:
        value, text = record[column.name], texts.pop(str(column.attnum), None)
        assert value is None or text is None, f"{column.name} has a value and an exact text"
        cells.append(value if text is None else Exact(text))
    assert not texts, "an exact text of a column that is not there"
    return canonical(tuple(cells))


def _canonical(cell: Cell) -> Cell:
    if isinstance(cell, float):
        return "NaN" if math.isnan(cell) else struct.pack(">d", cell).hex()
    return cell if cell is None or isinstance(cell, Exact) else str(cell)
