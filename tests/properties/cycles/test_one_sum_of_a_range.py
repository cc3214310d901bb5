"""A range adds up to the same in this process and by Spark, on random histories of tables of every kind."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakeproof.hidden_columns import COMMIT_TIME, FROM, TEXT
from lakeproof.lake.columns import current_columns, history_columns, in_lake, merge_key
from lakeproof.lake.delta.search import KeyLookup
from lakeproof.lake.fold.history import change_rows
from lakeproof.lake.fold.key_fold import fold_keys
from lakeproof.lake.fold.net_change import ResolvedChanges, resolve_range
from lakeproof.lake.rows.change import FIRST, AllRows, Numbers, Removed
from lakeproof.lake.rows.columns import relation
from lakeproof.lake.rows.file_rows import LandedRange
from lakeproof.lake.rows.landing_rows import LandedChanges, read_landed_changes
from lakeproof.landing.segments.reader import count_changes, slices
from lakeproof.lsn import Lsn
from lakeproof.schema import SchemaVersion
from tests.support.lake.simulated_source import START, SimulatedSource, SimulatedTable
from tests.support.workloads.lake_workload import make_tables, run_transactions

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Rows:
    """A table's rows before a range, in memory."""

    rows: pa.Table

    def fetch(self, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
        """Return the rows that have one of the keys."""
        return self.rows.select(list(columns)).take(pa.array(self._matched(keys)[0]))

    def counts(self, keys: pa.Table) -> Numbers:
        """Return how many rows have each key."""
        return np.bincount(self._matched(keys)[1], minlength=keys.num_rows)

    def _matched(self, keys: pa.Table) -> tuple[Numbers, Numbers]:
        lookup = KeyLookup.of(keys.column_names, keys)
        return lookup.match(self.rows.column(name) for name in keys.column_names)


def _rows(parts: Sequence[pa.Table], names: Sequence[str]) -> list[str]:
    """Each row's values; of JSON the entries, whose order and spelling mean nothing."""
    result = list[str]()
    for part in parts:
        columns = []
        for name in names:
            values = part.column(name) if name in part.column_names else pa.nulls(part.num_rows)
            if name == COMMIT_TIME:
                values = values.cast(pa.timestamp("us", "UTC"))
            entries = values.to_pylist()
            if name in {TEXT, FROM}:
                entries = [sorted(json.loads(text).items()) if text else None for text in entries]
            columns.append(entries)
        result += map(repr, zip(*columns, strict=True))
    return sorted(result)


def _by_spark(schema: SchemaVersion, resolved: ResolvedChanges) -> list[list[str]]:
    """History's rows, the keys that go, the rows that come, and whether all goes; each as a sorted multiset."""
    net = resolved.net
    history, images = change_rows(schema, resolved.events).toArrow(), net.images
    return [
        _rows([history], history_columns(schema)),
        _keys(
            schema, Removed(net.removed.key, net.removed.rows.toArrow()) if isinstance(net.removed, Removed) else None
        ),
        [] if images is None else _rows([images.toArrow()], current_columns(schema)),
        [str(isinstance(net.removed, AllRows))],
    ]


def _keys(schema: SchemaVersion, removed: Removed[pa.Table] | AllRows | None) -> list[str]:
    """Each key that goes, and which row it presupposes; of a bag, that it does."""
    if not isinstance(removed, Removed) or not removed.rows.num_rows:
        return []
    deletes = removed.rows
    names = [*merge_key(schema), *([] if schema.is_bag else [FIRST])]
    assert not (schema.is_bag and deletes.column(FIRST).null_count)
    return _rows([deletes], names)


def _in_arrow(landed: LandedRange, table: SimulatedTable, base: pa.Table | None) -> list[list[str]]:
    schema = landed.schema
    counts = count_changes(landed.slices, landed.start, landed.end)
    fold = fold_keys(landed, counts, None if base is None else Rows(base))
    return [
        _rows(list(fold.history([(f, f.in_range) for f in fold.files])), history_columns(schema)),
        _keys(schema, fold.removed),
        _rows(list(fold.current([(f, f.alive) for f in fold.files])), current_columns(schema)),
        [str(isinstance(fold.removed, AllRows))],
    ]


@pytest.mark.parametrize("ranges", [1, pytest.param(30, marks=pytest.mark.full)])
def test_both_executors_add_up_to_the_same(spark: SparkSession, tmp_path: Path, ranges: int) -> None:
    """Composite, computed and configured keys, bags; unchanged values across moves and swaps, truncates, parts of files."""
    rng = random.Random(SEED)
    tables = make_tables()
    source = SimulatedSource(tmp_path, tables)
    run_transactions(rng, source, 12 * max(4, ranges // 4))
    ends = [START, *sorted(source.states)]
    compared = 0
    while compared < ranges:
        table = tables[compared % len(tables)]
        first = rng.randrange(len(ends) - 1)
        start, end = Lsn(ends[first]), Lsn(ends[rng.randrange(first + 1, len(ends))])
        landed = _landed(source, table, start, end)
        counts = count_changes(landed.slices, start, end)
        if not counts.rows:
            continue
        compared += 1
        base = _before(spark, source, table, start)
        frame = None if base is None else relation(spark, base)
        changes = LandedChanges(landed.schema, read_landed_changes(spark, landed), counts)
        large = resolve_range(spark, changes, frame)
        message = f"{table.version.table}, ({start}, {end}], seed {SEED}"
        for mine, theirs in zip(_in_arrow(landed, table, base), _by_spark(landed.schema, large), strict=True):
            assert mine == theirs, message
        large.release()


def _landed(source: SimulatedSource, table: SimulatedTable, start: Lsn, end: Lsn) -> LandedRange:
    pieces = list(slices(source.chain, start, end, table.version.table))
    return LandedRange(in_lake(table.version), pieces, {p.number: 1000 * p.number for p in pieces}, start, end)


def _before(spark: SparkSession, source: SimulatedSource, table: SimulatedTable, position: Lsn) -> pa.Table | None:
    """The table as it was at a position, made by Spark from all that came before."""
    landed = _landed(source, table, Lsn(START), position)
    counts = count_changes(landed.slices, landed.start, position)
    if not counts.rows:
        return None
    resolved = resolve_range(spark, LandedChanges(landed.schema, read_landed_changes(spark, landed), counts), None)
    images = resolved.net.images
    rows = None if images is None else images.toArrow()
    resolved.release()
    return rows
