"""A file that is not what was made durable is refused before a row of it is in the lake.

A flipped bit is not always an error to a Parquet reader: it can be another value, or NULL.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.fix_postgres import Database
from wal2delta.config.model import Config
from wal2delta.drain.until import Until
from wal2delta.errors import LakeError
from wal2delta.lake.open import open_lake
from wal2delta.pipeline.bootstrap import bootstrap
from wal2delta.pipeline.compact import compact
from wal2delta.pipeline.drain import drain
from wal2delta.report import Stop, silent

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]


@pytest.mark.parametrize("room", ["snapshots", "landing"])
def test_a_flipped_bit_is_refused_and_the_mended_file_is_taken(
    database: Database, spark: SparkSession, tmp_path: Path, room: str
) -> None:
    """The error names the file; with the file as it was the same cycle ends."""
    database.execute("CREATE TABLE items (id int PRIMARY KEY, v text)", "CREATE PUBLICATION pub FOR TABLE items")
    database.execute("INSERT INTO items VALUES (1, 'copied')")
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source()})
    bootstrap(config, "shop")
    database.execute("INSERT INTO items VALUES (2, 'streamed')")
    drain(config, "shop", Until.caught_up())
    (path,) = (tmp_path / "lake" / "shop" / room).rglob("*.parquet")
    whole = path.read_bytes()
    for at in (len(whole) // 4, len(whole) // 2):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(LakeError, match="its checksum is not the one its manifest says") as raised:
            compact(config, "shop", spark, silent, Stop())
        assert str(path) in str(raised.value)
    path.write_bytes(whole[:-1])
    with pytest.raises(LakeError, match="bytes, its manifest says"):
        compact(config, "shop", spark, silent, Stop())
    path.write_bytes(whole)
    (done,) = compact(config, "shop", spark, silent, Stop())
    assert not done.held
    rows = open_lake(spark, config).table("shop", "public.items").collect()
    assert {(row["id"], row["v"]) for row in rows} == {(1, "copied"), (2, "streamed")}
