"""Files of history beyond a position, and files of current without a key, are not read, however wide the table is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.properties.test_apply_cycles import make_config, run_compact
from tests.simulated_rows import shape
from tests.simulated_source import SOURCE, SimulatedSource, SimulatedTable
from wal2delta.lake.open import open_lake
from wal2delta.schema import Identity

pytestmark = pytest.mark.spark
WIDE = 40  # more than the 32 columns that Delta keeps statistics of by itself


def files_read(frame: DataFrame) -> int:
    """How many files are left when Delta has looked at its statistics."""
    return len(frame.inputFiles())


def test_files_beyond_a_position_or_a_key_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """Four cycles make four files; the key and the hidden columns stand behind 40 others."""
    columns = {f"c {i}": "int4" for i in range(WIDE)} | {"id": "int8"}
    table = SimulatedTable(shape("wide", columns, ("id",), Identity.DEFAULT, 7))
    source = SimulatedSource(tmp_path, [table])
    config = make_config(tmp_path)
    source.snapshot(["wide"])
    run_compact(spark, config)
    ends = []
    for number in range(1, 5):
        source.insert(table, (*range(WIDE), number))
        ends.append(source.commit(random.Random(number)))
        source.flush()
        run_compact(spark, config)
    lake = open_lake(spark, config)
    history = lake.table(SOURCE, table.version.table, layer="history", hidden=True)
    current = lake.table(SOURCE, table.version.table)
    assert (files_read(history), files_read(current)) == (4, 4)
    for number, end in enumerate(ends, start=1):
        assert files_read(history.where(f"_w2d_lsn <= {int(end)}")) == number
        assert files_read(history.where(f"_w2d_lsn = {int(end)}")) == 1
        assert files_read(current.where(f"id = {number}")) == 1
    assert files_read(history.where("id = 3")) == 1
