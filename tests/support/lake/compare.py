"""An independent comparison of source and lake: plain SQL on one side, delta-rs on the other.

lakeproof's own reader, exact forms and proof take no part in it; that is its point.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import deltalake
import psycopg
import pyarrow as pa
from psycopg import sql

from lakeproof.names import TableName

Rows: TypeAlias = Counter[tuple[str | None, ...]]

_SETTINGS = "-c DateStyle=ISO -c TimeZone=UTC -c extra_float_digits=1 -c bytea_output=hex -c IntervalStyle=postgres"


def source_rows(
    dsn: str, tables: tuple[TableName, ...], columns: Mapping[TableName, Collection[str]] | None = None
) -> dict[TableName, Rows]:
    """Every row of `tables` as PostgreSQL's text, at one snapshot; without the columns that `columns` leaves out."""
    actual: dict[TableName, Rows] = {}
    with psycopg.connect(dsn, options=_SETTINGS) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        for table in tables:
            own = [(n, k) for n, k in _columns(connection, table) if columns is None or n in columns[table]]
            texts = sql.SQL(", ").join(_form(name, kind) for name, kind in own)
            only = sql.SQL("" if _is_partitioned(connection, table) else "ONLY ")
            query = sql.SQL("SELECT {} FROM {}{}").format(texts, only, sql.Identifier(table.schema, table.name))
            actual[table] = Counter(tuple(row) for row in connection.execute(query))
    return actual


def current_lsn(dsn: str) -> str:
    """The end of the WAL written so far, as text."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
        assert row is not None
        return str(row[0])


def lake_rows(
    path: Path | str, version: int, columns: list[str], attnums: list[int], options: dict[str, str] | None = None
) -> Rows:
    """Every row of a current table at a Delta version, read by delta-rs, as PostgreSQL would print it.

    `options` are delta-rs's own for an object store.
    """
    table = deltalake.DeltaTable(str(path), version=version, storage_options=options)
    batches = deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    return rows_of(pa.table(batches), columns, attnums)


def rows_of(data: pa.Table, columns: list[str], attnums: list[int]) -> Rows:
    """The rows of a current table in memory, with `_lp_text`, as PostgreSQL would print them."""
    texts = data.column("_lp_text").to_pylist()
    values = [data.column(name).to_pylist() for name in columns]
    fields = [data.schema.field(name) for name in columns]
    rows: Rows = Counter()
    for index, exact in enumerate(texts):
        kept: Mapping[str, str] = json.loads(exact) if exact else {}
        row = tuple(
            kept.get(str(attnum), _text(column[index], column_field.type))
            for column, column_field, attnum in zip(values, fields, attnums, strict=True)
        )
        rows[row] += 1
    return rows


def table_columns(dsn: str, table: TableName) -> tuple[list[str], list[int]]:
    """The names and attribute numbers of a table's columns, in order."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT attname, attnum FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
            " ORDER BY attnum",
            (f'"{table.schema}"."{table.name}"',),
        ).fetchall()
    return [str(name) for name, _ in rows], [int(number) for _, number in rows]


def _is_partitioned(connection: psycopg.Connection[Any], table: TableName) -> bool:
    """True if its rows are those of its partitions; the rows of a table's inheritance children are their own."""
    query = "SELECT relkind = 'p' FROM pg_class WHERE oid = %s::regclass"
    return bool(connection.execute(query, (f'"{table.schema}"."{table.name}"',)).fetchall()[0][0])


def _columns(connection: psycopg.Connection[Any], table: TableName) -> list[tuple[str, str]]:
    rows = connection.execute(
        "SELECT attname, atttypid::regtype::text FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (f'"{table.schema}"."{table.name}"',),
    ).fetchall()
    return [(str(name), str(kind)) for name, kind in rows]


def _form(name: str, kind: str) -> sql.Composed:
    column = sql.Identifier(name)
    send = {"real": "float4send", "double precision": "float8send"}.get(kind.removesuffix("[]"))
    if send is not None and kind.endswith("[]"):
        # Arrays of another form stand in `_lp_text`, as PostgreSQL prints them.
        return sql.SQL(
            "CASE WHEN array_lower({c}, 1) = 1 AND array_ndims({c}) = 1 THEN (SELECT concat('{{', string_agg(coalesce("
            "CASE WHEN e = 'NaN' THEN 'NaN' ELSE encode({send}(e), 'hex') END, 'NULL'), ',' ORDER BY n), '}}')"
            " FROM unnest({c}) WITH ORDINALITY AS u (e, n)) WHEN {c} IS NOT NULL THEN concat({c}) END"
        ).format(c=column, send=sql.Identifier(send))
    if send is None:
        # concat() calls the output function; a cast to text would trim and rewrite some types.
        return sql.SQL("CASE WHEN {c} IS NULL THEN NULL ELSE concat({c}) END").format(c=column)
    # The shortest digits of a float depend on who prints it; its bits don't.
    return sql.SQL("CASE WHEN {c} = 'NaN' THEN 'NaN' ELSE encode({send}({c}), 'hex') END").format(
        c=column, send=sql.Identifier(send)
    )


def _text(value: Any, kind: pa.DataType) -> str | None:
    """A value of delta-rs as PostgreSQL's output function would print it; floats by their bits."""
    if value is None:
        return None
    match value:
        case list():
            return "{" + ",".join(_element(element, kind.value_type) for element in value) + "}"
        case bool():
            return "t" if value else "f"
        case float():
            return _bits(value, single=pa.types.is_float32(kind))
        case bytes():
            return "\\x" + value.hex()
        case Decimal():
            return format(value, "f")
        case datetime():
            zone = "+00" if value.tzinfo else ""
            text = value.replace(tzinfo=None).isoformat(" ")
            return (text.rstrip("0") if "." in text else text) + zone
        case date():
            return value.isoformat()
        case _:
            return str(value)


def _element(value: Any, kind: pa.DataType) -> str:
    """An element as it stands in its array's text."""
    text = _text(value, kind)
    if text is None:
        return "NULL"
    if text and text.upper() != "NULL" and not re.search(r'[{}",\\ \t\n\v\f\r]', text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _bits(value: float, *, single: bool) -> str:
    if math.isnan(value):
        return "NaN"
    return struct.pack(">f" if single else ">d", value).hex()
