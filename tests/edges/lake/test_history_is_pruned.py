"""Files of history beyond a position, and files of current without a key, are not read, however wide the table is.

Nor are they when maintenance has put files together.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timezone
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

import lakeproof
from lakeproof.commands.maintain import maintain
from lakeproof.events import silent
from lakeproof.lake.delta.files import optimize
from lakeproof.lake.delta.files.optimize import Placed, neighbours
from lakeproof.lake.read.spark.open import open_lake
from lakeproof.lsn import Lsn
from lakeproof.schema import Identity
from tests.support.lake.lake_steps import make_config, run_compact
from tests.support.lake.maintain_steps import policy
from tests.support.lake.simulated_rows import rows_of, schema
from tests.support.lake.simulated_source import SOURCE, SimulatedSource, SimulatedTable

pytestmark = pytest.mark.spark
WIDE = 40  # more than the 32 columns that Delta keeps statistics of by itself


def files_read(frame: DataFrame) -> int:
    """Return the number of files that are left when Delta has looked at its statistics."""
    return len(frame.inputFiles())


def test_files_beyond_a_position_or_a_key_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """Four cycles make four files; the key and the hidden columns stand behind 40 others."""
    columns = {f"c {i}": "int4" for i in range(WIDE)} | {"id": "int8"}
    table = SimulatedTable(schema("wide", columns, ("id",), Identity.DEFAULT, 7))
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
        assert files_read(history.where(f"_lp_lsn <= {int(end)}")) == number
        assert files_read(history.where(f"_lp_lsn = {int(end)}")) == 1
        assert files_read(current.where(f"id = {number}")) == 1
    assert files_read(history.where("id = 3")) == 1


@pytest.mark.full
def test_packed_files_of_history_are_read_by_pruning(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six cycles of very different sizes, two to a packed file: each file has a stretch of positions and of times."""
    table = SimulatedTable(schema("notes", {"id": "int8", "note": "text"}, ("id",), Identity.DEFAULT, 7))
    source = SimulatedSource(tmp_path, [table])
    config = make_config(tmp_path)
    source.snapshot(["notes"])
    run_compact(spark, config)
    ends = []
    for number in range(6):
        # The sizes' order is not that of the positions: OPTIMIZE alone would put the three small ones together.
        text = "".join(random.Random(number).choices("abcdefghij", k=(1, 8)[number % 2] * 4_000))
        source.insert(table, (number, text))
        ends.append(source.commit(random.Random(number)))
        source.flush()
        run_compact(spark, config)
    name = table.version.table

    def history() -> DataFrame:
        return open_lake(spark, config).table(SOURCE, name, layer="history", hidden=True)

    sizes = [row[0] for row in history().selectExpr("_metadata.file_size").collect()]
    # inside: its real files have 128 MB
    monkeypatch.setattr(optimize, "TARGET_BYTES", 2 * sum(sizes) // 6 + min(sizes) // 2)
    before = history().orderBy("_lp_ord").collect()
    # Cycles would put so few files together, too.
    maintain(policy(tmp_path, small_files=2), SOURCE, spark, silent)
    packed = history()
    assert files_read(packed) == 3
    assert packed.orderBy("_lp_ord").collect() == before
    for number, end in enumerate(ends):
        assert files_read(packed.where(f"_lp_lsn <= {int(end)}")) == number // 2 + 1
        assert files_read(packed.where(f"_lp_lsn = {int(end)}")) == 1
        # Commit times are not in the order of commits: a neighbour may reach into another's.
        place = packed.where(f"_lp_lsn = {int(end)}").select("_lp_commit_time")
        moment = place.collect()[0][0].astimezone(timezone.utc)
        assert files_read(packed.where(packed["_lp_commit_time"] == moment)) <= 2
    position = Lsn(int(ends[2]))
    actual = lakeproof.as_of(spark, config, position).table(name, hidden=True)
    assert rows_of(actual, table.version) == source.state_at(position)[name]


@pytest.mark.full
def test_packed_files_of_current_are_read_by_their_keys(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of six cycles writes keys from all over; in the packed files a key, or a range of keys, is in few of them."""
    table = SimulatedTable(schema("notes", {"a.b": "text", "id": "int8"}, ("id",), Identity.DEFAULT, 7))
    source = SimulatedSource(tmp_path, [table])
    config = make_config(tmp_path)
    source.snapshot(["notes"])
    run_compact(spark, config)
    for number in range(6):
        for key in range(number, 600, 6):
            source.insert(table, ("".join(random.Random(key).choices("abcdefghij", k=200)), key))
        source.commit(random.Random(number))
        source.flush()
        run_compact(spark, config)

    def current() -> DataFrame:
        return open_lake(spark, config).table(SOURCE, table.version.table)

    sizes = {row[0]: row[1] for row in current().selectExpr("_metadata.file_path", "_metadata.file_size").collect()}
    # inside: its real files have 128 MB
    monkeypatch.setattr(optimize, "TARGET_BYTES", sum(sizes.values()) // 3)
    before = current().orderBy("id").collect()
    assert (files_read(current().where("id = 100")), files_read(current().where("id BETWEEN 100 AND 150"))) == (6, 6)
    # Cycles would put so few files together, too.
    maintain(policy(tmp_path, small_files=2), SOURCE, spark, silent)
    assert 3 <= files_read(current()) <= 4
    assert files_read(current().where("id = 100")) == 1
    assert files_read(current().where("id BETWEEN 100 AND 150")) <= 2
    assert current().orderBy("id").collect() == before


def _placed(*sizes: int, worn: int = -1) -> list[Placed]:
    """Files of so many megabytes, in this order."""
    return [
        Placed(number, number, size << 20, number == worn, cast("Any", number)) for number, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (_placed(1, 1, 1), [[0, 1, 2]]),
        (_placed(1, 1, 200, 1, 1), [[0, 1], [3, 4]]),
        (_placed(*[15] * 10), [[*range(8)], [8, 9]]),
        (_placed(200, 1, 200), []),
        (_placed(60, 1, 60, 1), [[0, 1], [2, 3]]),
        (_placed(1, 60), []),
        (_placed(1), []),
        (_placed(200, 40, 200, worn=1), [[1]]),
        (list(reversed(_placed(1, 2, 3))), [[0, 1, 2]]),
        ([], []),
        # Files that overlap are one run, however large; a file that begins at another's end does not overlap it.
        ([replace(f, low=0, high=9) for f in _placed(*[15] * 10)], [[*range(10)]]),
        ([replace(f, high=f.low + 1) for f in _placed(*[15] * 10)], [[*range(8)], [8, 9]]),
    ],
)
def test_neighbours_are_put_together(files: list[Placed], expected: list[list[int]]) -> None:
    """Small files with small ones beside them, as many as fit; a large file parts them, or takes a single one up."""
    assert cast("Any", neighbours(files)) == expected
