"""A range added up in memory and the same range added up by Spark are equal, on random histories of the keyed tables."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakeproof.hidden_columns import TEXT
from lakeproof.lake.columns import history_columns, in_lake
from lakeproof.lake.fold import in_memory
from lakeproof.lake.fold.history import change_rows
from lakeproof.lake.fold.in_memory import fold_in_memory, within
from lakeproof.lake.fold.net_change import ResolvedChanges, resolve_range
from lakeproof.lake.planning.landed_range import LandedRange
from lakeproof.lake.planning.range_counts import count_changes
from lakeproof.lake.rows.landing_rows import Changes, read_changes
from lakeproof.landing.reader import slices
from lakeproof.lsn import Lsn
from lakeproof.schema import SchemaVersion
from tests.lake_workload import make_tables, run_transactions
from tests.simulated_source import START, SimulatedSource, SimulatedTable

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
pytestmark = pytest.mark.spark


def parts(schema: SchemaVersion, resolved: ResolvedChanges) -> list[list[str] | None]:
    """History's rows, the keys that go, the rows that come, and whether all goes; each as a sorted multiset."""
    history = change_rows(schema, resolved.events).select(*(f"`{c}`" for c in history_columns(schema)))
    return [_rows(history), _rows(resolved.net.deletes), _rows(resolved.net.images), [str(resolved.net.truncate)]]


def _rows(frame: DataFrame | None) -> list[str]:
    """Each row's values; of exact texts the entries, whose order and spelling in JSON mean nothing."""
    if frame is None:
        return []
    position = frame.columns.index(TEXT) if TEXT in frame.columns else len(frame.columns)
    rows = [tuple(row) for row in frame.collect()]
    message = [
        (*r[:position], *(sorted(json.loads(t).items()) if t else t for t in r[position:][:1]), *r[position + 1 :])
        for r in rows
    ]
    return sorted(map(repr, message))


@pytest.mark.parametrize("ranges", [1, pytest.param(40, marks=pytest.mark.full)])
def test_both_roads_add_up_to_the_same(spark: SparkSession, tmp_path: Path, ranges: int) -> None:
    """Composite keys, keys by their text, unchanged values across moves and swaps, truncates, ends inside a file."""
    rng = random.Random(SEED)
    tables = make_tables()[:2]
    source = SimulatedSource(tmp_path, tables)
    run_transactions(rng, source, 12 * ranges)
    ends = [START, *sorted(source.states)]
    for number in range(ranges):
        table = tables[number % 2]
        first = rng.randrange(len(ends) - 1)
        start, end = Lsn(ends[first]), Lsn(ends[rng.randrange(first + 1, len(ends))])
        schema = in_lake(table.version)
        pieces = list(slices(source.chain, start, end, table.version.table))
        counts = count_changes(pieces, start, end)
        if not counts.rows:
            continue
        bases = {piece.number: 1000 * piece.number for piece in pieces}
        landed = LandedRange(schema, pieces, bases, start, end)
        base = before(spark, source, table, start)
        small = fold_in_memory(spark, landed, counts, base)
        assert small is not None
        frame = read_changes(spark, landed)
        large = resolve_range(spark, Changes(schema, frame, counts), base)
        assert parts(schema, small) == parts(schema, large), f"{table.version.table}, ({start}, {end}], seed {SEED}"
        large.release()


def before(spark: SparkSession, source: SimulatedSource, table: SimulatedTable, position: Lsn) -> DataFrame | None:
    """The table as it was at a position, made by Spark's road from all that came before."""
    schema, start = in_lake(table.version), Lsn(START)
    pieces = list(slices(source.chain, start, position, table.version.table))
    counts = count_changes(pieces, start, position)
    if not counts.rows:
        return None
    frame = read_changes(
        spark, LandedRange(schema, pieces, {p.number: 1000 * p.number for p in pieces}, start, position)
    )
    resolved = resolve_range(spark, Changes(schema, frame, counts), None)
    images = resolved.net.images
    rows = None if images is None else spark.createDataFrame(images.toArrow(), images.schema)
    resolved.release()
    return rows


def test_large_rows_stay_in_the_lake(spark: SparkSession) -> None:
    """Only the key of a row with more bytes than its share comes to the driver."""
    rows = spark.createDataFrame(
        [(1, "x" * 9, None, []), (2, "x", b"\0" * 9, []), (3, None, None, ["y" * 9]), (4, None, None, None)],
        "id int, a string, b binary, c array<string>",
    )
    actual = {row[0]: tuple(row)[1:] for row in within(rows, ["a", "b", "c"], 11).collect()}
    none = (None, None, None)
    assert actual[1] == ("x" * 9, None, [], False)
    assert (actual[2], actual[3], actual[4]) == ((*none, True), (None, None, ["y" * 9], False), (*none, False))


def test_what_does_not_fit_is_left_to_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bags, old rows, unchanged values, and more rows or bytes than are allowed."""
    rng = random.Random(SEED)
    source = SimulatedSource(tmp_path, make_tables())
    run_transactions(rng, source, 20)
    end = source.chain.end
    small = {}
    for table in source.tables.values():
        pieces = list(slices(source.chain, Lsn(START), end, table.version.table))
        bases = {piece.number: 1000 * piece.number for piece in pieces}
        schema, counts = in_lake(table.version), count_changes(pieces, Lsn(START), end)
        actual = fold_in_memory(spark, LandedRange(schema, pieces, bases, Lsn(START), end), counts, None)
        small[table.version.table.name] = actual is not None
    assert small == {"order lines": True, "rates": True, "bag": False, "full": False, "log": False}
    table = source.table("rates")
    pieces = list(slices(source.chain, Lsn(START), end, table.version.table))
    for limit in ("SMALL_ROWS_MAX", "SMALL_BYTES_MAX"):
        with monkeypatch.context() as patched:
            patched.setattr(in_memory, limit, 1)  # inside: its real limits take 20,000 rows
            counts = count_changes(pieces, Lsn(START), end)
            bases = {piece.number: 1000 * piece.number for piece in pieces}
            schema = in_lake(table.version)
            assert fold_in_memory(spark, LandedRange(schema, pieces, bases, Lsn(START), end), counts, None) is None
