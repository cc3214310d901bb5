"""Rows of every type that a column of the lake can have, in files as the copy and the drain write them."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterable, Mapping
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeproof.lake.delta.files.links import LandedFile
from lakeproof.storage.local import LocalStore
from lakeproof.storage.open import open_store
from lakeproof.storage.parquet import bounded, open_parquet

# The least and greatest day, and microsecond, of the years 1 to 9999.
DAYS = (-719_162, 2_932_896)
MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
# Column → its type in Arrow, in Spark.
TYPES: Mapping[str, tuple[pa.DataType, str]] = {
    "id": (pa.int64(), "bigint"),
    "small": (pa.int16(), "smallint"),
    "whole": (pa.int32(), "int"),
    "flag": (pa.bool_(), "boolean"),
    "ratio4": (pa.float32(), "float"),
    "ratio8": (pa.float64(), "double"),
    "money": (pa.decimal128(9, 2), "decimal(9,2)"),
    "finer": (pa.decimal128(18, 4), "decimal(18,4)"),
    "widest": (pa.decimal128(38, 10), "decimal(38,10)"),
    "note": (pa.string(), "string"),
    "octets": (pa.binary(), "binary"),
    "day": (pa.date32(), "date"),
    "at": (pa.timestamp("us"), "timestamp_ntz"),
    "instant": (pa.timestamp("us", "UTC"), "timestamp"),
    "numbers": (pa.list_(pa.field("element", pa.int32())), "array<int>"),
    "notes": (pa.list_(pa.field("element", pa.string())), "array<string>"),
    "moments": (pa.list_(pa.field("element", pa.timestamp("us"))), "array<timestamp_ntz>"),
    "nothing": (pa.string(), "string"),
}
SPARK_TYPES = {name: spark for name, (_, spark) in TYPES.items()}
_LONG = "x" * 32
_TEXTS = (
    "",
    "é😀",
    "a\x00b",
    'q"\\\n\u2028',
    "ÿ",
    _LONG,
    _LONG + "a",
    _LONG + "\x7f",
    _LONG + "é",
    _LONG + "\U0010ffff" * 3,
)


def _whole(bits: int) -> Callable[[random.Random], int]:
    top = 1 << bits - 1
    return lambda rng: rng.choice([-top, top - 1, 0, rng.randrange(-top, top)])


def _decimal(digits: int, scale: int) -> Callable[[random.Random], Decimal]:
    most = 10**digits - 1
    context = Context(prec=60)
    return lambda rng: Decimal(rng.choice([most, -most, 0, rng.randrange(-most, most)])).scaleb(-scale, context)


def _time(rng: random.Random) -> int:
    return rng.choice([*MICROSECONDS, -1, -1500, 0, 999, 1000, rng.randrange(*MICROSECONDS)])


def _float(rng: random.Random) -> float:
    return rng.choice([0.0, -0.0, float("nan"), float("inf"), -float("inf"), rng.uniform(-9, 9)])


def _list_of(make: Callable[[random.Random], Any]) -> Callable[[random.Random], list[Any]]:
    return lambda rng: [rng.choice([None, make(rng)]) for _ in range(rng.randrange(4))]


_MAKERS: Mapping[str, Callable[[random.Random], Any]] = {
    "id": lambda rng: rng.randrange(1 << 40),
    "small": _whole(16),
    "whole": _whole(32),
    "flag": lambda rng: rng.random() < 0.5,
    "ratio4": _float,
    "ratio8": _float,
    "money": _decimal(9, 2),
    "finer": _decimal(18, 4),
    "widest": _decimal(38, 10),
    "note": lambda rng: rng.choice(_TEXTS),
    "octets": lambda rng: rng.randbytes(rng.randrange(9)),
    "day": lambda rng: rng.choice([*DAYS, 0, rng.randrange(*DAYS)]),
    "at": _time,
    "instant": _time,
    "numbers": _list_of(_whole(32)),
    "notes": _list_of(lambda rng: rng.choice(_TEXTS)),
    "moments": _list_of(_time),
    "nothing": lambda _rng: None,
}


def array_of(name: str, values: list[Any]) -> pa.Array:
    """Return a column's values; days and times come as numbers."""
    arrow = TYPES[name][0]
    raw = {"day": pa.int32(), "at": pa.int64(), "instant": pa.int64(), "moments": pa.list_(pa.int64())}.get(name, arrow)
    return pa.array(values, raw).cast(arrow)


def random_rows(rng: random.Random, rows: int, first: int = 0, nulls: float = 0.1) -> pa.Table:
    """Return rows of every type; `id` counts from `first`."""
    columns = {}
    for name in TYPES:
        make = _MAKERS[name]
        values = [None if rng.random() < nulls else make(rng) for _ in range(rows)]
        columns[name] = array_of(name, list(range(first, first + rows)) if name == "id" else values)
    return pa.table(columns)


def land(folder: Path, name: str, rows: pa.Table, group_rows: int = 1 << 20) -> LandedFile:
    """Write the rows as a landed file is written, in row groups of this size.

    Whoever links it opens the store that has the folder and the table.
    """
    file = LocalStore(folder).create(name)
    with open_parquet(file, rows.schema, statistics=bounded(rows.schema)) as writer:
        writer.write_table(rows, row_group_size=group_rows)
    file.finish()
    return LandedFile(str(folder / name), rows.num_rows, file.bytes_written, file.sha256)


def in_one_store(table: Path, files: Iterable[LandedFile]) -> None:
    """Open the store that has a table's folder and the files that are to be linked into it."""
    open_store(os.path.commonpath([table.parent, *(Path(file.url).parent for file in files)]))


def landed(place: Path) -> LandedFile:
    """Return the description of a file that somebody else has written."""
    data = place.read_bytes()
    return LandedFile(str(place), pq.read_metadata(place).num_rows, len(data), hashlib.sha256(data).hexdigest())


def as_numbers(rows: pa.Table) -> list[dict[str, Any]]:
    """Return the rows by `id`, with days and times as numbers and floats by their digits: NaN equals itself then."""
    columns = {}
    for name in rows.column_names:
        array = rows[name].combine_chunks()
        if pa.types.is_timestamp(array.type):
            array = array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())
        elif pa.types.is_date32(array.type):
            array = array.cast(pa.int32())
        elif pa.types.is_list(array.type) and pa.types.is_timestamp(array.type.value_type):
            array = array.cast(pa.list_(pa.int64()))
        values = array.to_pylist()
        columns[name] = [v.hex() if isinstance(v, float) else v for v in values]
    result = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return sorted(result, key=lambda row: row["id"])
