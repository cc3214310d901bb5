"""The steps of a test of linked files: three landed files of every type, a commit of some of them, reading, damage.

What becomes of the files belongs to the tests; the rows to `linkable_rows.py`.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lakeproof.lake.delta.committer import CommitInfo
from lakeproof.lake.delta.files.links import LandedFile
from lakeproof.lake.delta.link_commit import Link, LinkRequest, NewTable
from lakeproof.lake.delta.log.commits import NO_VERSION, newest_version
from lakeproof.lake.delta.log.protocol import TableSpec
from tests.support.lake.linkable_rows import SPARK_TYPES, as_numbers, in_one_store, land, random_rows

APP = "lakeproof/shop/1/current/shop.t"
ROWS = 300


def info(number: int) -> CommitInfo:
    """The identity of a cycle's commit."""
    return CommitInfo(APP, number, json.dumps({"cycle": number, "incarnation": 1, "position": "0/1"}))


def request(table: Path, number: int, links: Sequence[Link], columns: dict[str, str] = SPARK_TYPES) -> LinkRequest:
    """A commit on top of whatever the table has; the first makes it."""
    in_one_store(table, [link.landed for link in links])
    new = NewTable(columns, TableSpec())
    version = newest_version(str(table))
    create = new if version == NO_VERSION else None
    return LinkRequest(str(table), info(number), links, {name: name for name in columns}, version, create=create)


def read(spark: SparkSession, table: Path, version: int | None = None) -> DataFrame:
    """The table's rows."""
    reader = spark.read.format("delta")
    return (reader if version is None else reader.option("versionAsOf", version)).load(str(table))


def expected(*tables: pa.Table) -> list[dict[str, Any]]:
    """The rows of these."""
    return as_numbers(pa.concat_tables(tables))


def three_files() -> list[pa.Table]:
    """Return three files' rows of every type."""
    return [random_rows(random.Random(5 + n), ROWS, n * ROWS) for n in range(3)]


def land_three(place: Path, rows: list[pa.Table]) -> list[LandedFile]:
    """Write the files, in several row groups."""
    return [land(place / "landing", f"{n:06d}-ab.parquet", part, 120) for n, part in enumerate(rows)]


def flip(place: Path) -> None:
    """Change one bit of a file."""
    data = bytearray(place.read_bytes())
    data[len(data) // 2] ^= 4
    place.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a flipped bit": flip,
    "cut short": lambda place: os.truncate(place, place.stat().st_size - 1),
    "missing": Path.unlink,
}
