"""Spark's vectorized reader reads what `open_parquet` writes: every type and encoding, with extremes and NULLs.

What the rows mean is tested with the landing and the snapshots.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakeproof.storage.open import open_store
from lakeproof.storage.parquet import encoding, open_parquet

ROWS = 3_000


def _numbers(bits: int) -> Callable[[random.Random], int]:
    return lambda rng: rng.choice(
        [-(1 << bits - 1), (1 << bits - 1) - 1, 0, rng.randrange(-(1 << bits - 1), 1 << bits - 1)]
    )


def _decimals(digits: int, scale: int) -> Callable[[random.Random], Decimal]:
    return lambda rng: Decimal(f"{rng.choice([10**digits - 1, 1 - 10**digits, rng.randrange(10**digits)])}E-{scale}")


COLUMNS: dict[str, tuple[pa.DataType, Callable[[random.Random], Any], pa.DataType | None]] = {
    "i2": (pa.int16(), _numbers(16), None),
    "i4": (pa.int32(), _numbers(32), None),
    "i8": (pa.int64(), _numbers(64), None),
    "day": (pa.date32(), lambda rng: rng.randrange(-719_162, 2_932_896), pa.int32()),
    "at": (pa.timestamp("us"), lambda rng: rng.randrange(-(10**16), 10**17), pa.int64()),
    "instant": (pa.timestamp("us", "UTC"), lambda rng: rng.randrange(-(10**16), 10**17), pa.int64()),
    "small": (pa.decimal128(9, 2), _decimals(9, 2), None),
    "medium": (pa.decimal128(18, 18), _decimals(18, 18), None),
    "large": (pa.decimal128(38, 5), _decimals(38, 5), None),
    "text": (pa.string(), lambda rng: rng.choice(["", "é😀", "x" * rng.randrange(200)]), None),
    "octets": (pa.binary(), lambda rng: rng.randbytes(rng.randrange(30)), None),
    "ratio": (pa.float64(), lambda rng: rng.choice([-0.0, float("inf"), rng.random()]), None),
    "flag": (pa.bool_(), lambda rng: rng.random() < 0.5, None),
    "list": (
        pa.list_(pa.int32()),
        lambda rng: [rng.choice([None, rng.randrange(9)]) for _ in range(rng.randrange(4))],
        None,
    ),
}


def _column(name: str, rng: random.Random) -> pa.Array:
    arrow, make, result = COLUMNS[name]
    values = [None if rng.random() < 0.1 else make(rng) for _ in range(ROWS)]
    return pa.array(values, result or arrow).cast(arrow)  # a date and a time are made as numbers


@pytest.mark.spark
def test_spark_reads_what_is_written(spark: SparkSession, tmp_path: Path) -> None:
    """All columns, in two row groups, value for value (random, seed 7)."""
    rng = random.Random(7)
    table = pa.table({name: _column(name, rng) for name in COLUMNS})
    file = open_store(str(tmp_path)).create("rows.parquet")
    with open_parquet(file, table.schema, dictionaries=["flag"], statistics=["i8"]) as writer:
        writer.write_table(table, row_group_size=ROWS // 2)
    file.finish()
    read = spark.read.parquet(str(tmp_path / "rows.parquet")).toArrow()
    for name in COLUMNS:
        assert read[name].cast(table[name].type).to_pylist() == table[name].to_pylist(), name


def test_only_types_that_gain_have_an_encoding_of_their_own() -> None:
    """A decimal beyond 64 bits, a float and a nested type stay plain."""
    plain = {name for name, (arrow, _, _) in COLUMNS.items() if encoding(arrow) is None}
    assert plain == {"large", "ratio", "flag", "list"}
