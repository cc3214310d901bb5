"""Times a cycle over 20 tables with 100 changes each, history included, against 40 bare Delta appends of the same rows.

    python -m bench.lake.many_tables [--tables 20] [--rows 20000] [--changes 100] [--rounds 3] [--threads 2] [--toast]
        [--idle 10000]

Both run in turn in one session, with the same number of threads. The bare appends write the rows that a cycle writes to
history and to current, from prepared frames. A cycle also reads the landing, resolves the changes, deletes, calls fsync, and
writes intent and cut. `--toast`: every update omits a large value, which the cycle reads from current. `--idle`: additional
tables without changes. No test belongs here.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from pydantic import SecretStr
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.lake.cycle import DELETES, HISTORY_EXTRA, KINDS, SOURCE, VERSION, WRITER, Meter, Spent, with_places
from lakeproof.change_counts import ChangeCounts
from lakeproof.commands.compact import compact
from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.section.spark import SparkConfig
from lakeproof.config.section.upkeep import CompactionConfig
from lakeproof.events import Stop, silent
from lakeproof.lake.delta.apply import CommitRequest, apply_change
from lakeproof.lake.delta.committer import CommitInfo
from lakeproof.lake.delta.log.protocol import TableSpec
from lakeproof.lake.records.documents import Cut, CutTable, CycleKind
from lakeproof.lake.records.store import read_cut, write_cut
from lakeproof.lake.rows.change import NetChange
from lakeproof.lake.spark.session import build_session
from lakeproof.landing.chain import Chain, NewHead
from lakeproof.landing.segments.manifest import ChainSource
from lakeproof.landing.segments.segment import SegmentWriter
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, Oid, TableName
from lakeproof.pgoutput.rows import Batch, SchemaInForce, TableBatch, row_schema
from lakeproof.schema import SchemaVersion
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import now_text

LARGE = len(KINDS) - 1  # the column that an update omits


class Lake:
    """Tables of `rows` rows each at their first cut, and bare tables for the appends."""

    def __init__(self, spark: SparkSession, folder: Path, options: argparse.Namespace) -> None:
        self.spark, self.options = spark, options
        self.lake, self.bare = folder / "lake", folder / "bare"
        self.source_lake = SourceLake.open(str(self.lake), SOURCE)
        head = ChainSource("1", 1, "bench", 16384, "bench", "bench", 180006)
        self.chain = Chain.create(self.source_lake, Incarnation(1), NewHead(Lsn(1), head, WRITER))
        self.versions = [
            replace(VERSION, table=TableName("public", f"item{i}"), oid=Oid(20_000 + i)) for i in range(options.tables)
        ]
        self.number = 0
        self._fill()
        self._add_idle()

    def _fill(self) -> None:
        texts = [F.hex(F.xxhash64("id", F.lit(i))).alias(f"t{i}") for i in range(5)]
        base = self.spark.range(0, self.options.rows, 1, 1).select(
            "id", (F.col("id") % 1000).cast("int").alias("n"), (F.col("id") / 7).alias("x"), *texts
        )
        self.current = with_places(base)
        self.history = base.withColumns({n: F.lit(None).cast(kind) for n, kind in HISTORY_EXTRA.items()})
        few = (rows.limit(self.options.changes).toArrow() for rows in (self.current, self.history))
        self.frames = [self.spark.createDataFrame(rows).coalesce(1) for rows in few]
        tables = {}
        first = CommitInfo("bench", 1, "{}")
        for version in self.versions:
            urls = (
                self.source_lake.url(self.source_lake.paths.current(version.table)),
                self.source_lake.url(self.source_lake.paths.history(version.table)),
            )
            for url, rows in zip(urls, (self.current, self.history.limit(0)), strict=True):
                apply_change(self.spark, CommitRequest(url, NetChange(images=rows), first, create=TableSpec()))
            tables[version.table] = CutTable(Lsn(1), Lsn(1), 0, 0, version, Incarnation(1), Incarnation(1))
        cut = Cut(CycleNumber(1), CycleKind.APPLY, Incarnation(1), Lsn(1), None, tables, 1, "0" * 64, now_text())
        write_cut(self.source_lake, cut)

    def _add_idle(self) -> None:
        """Add copies of the first table that no cycle changes."""
        cut = read_cut(self.source_lake, CycleNumber(1))
        tables, first = dict(cut.tables), self.versions[0].table
        for i in range(self.options.idle):
            version = replace(VERSION, table=TableName("public", f"idle{i}"), oid=Oid(100_000 + i))
            for key_of in (self.source_lake.paths.current, self.source_lake.paths.history):
                shutil.copytree(self.source_lake.url(key_of(first)), self.source_lake.url(key_of(version.table)))
            tables[version.table] = replace(tables[first], version=version)
        Path(self.source_lake.url(self.source_lake.paths.cut(CycleNumber(1)))).unlink()
        write_cut(self.source_lake, replace(cut, tables=tables))

    def land(self) -> None:
        """Land one segment with the changes of all tables."""
        lsn = int(self.chain.end) + 1000
        parts, schemas, first = [], [], 0
        for i, version in enumerate(self.versions):
            rows, counts = self._changes(version, lsn, np.random.default_rng([self.number, i]), first)
            parts.append(TableBatch(version, rows, counts))
            first += rows.num_rows
            if self.number == 0:
                schemas.append(SchemaInForce(version, Lsn(lsn), 0))
        segment = SegmentWriter(self.chain, WRITER)
        segment.add(Batch(parts, 1, first, Lsn(lsn), lsn, lsn, schemas, [], first))
        segment.finish(Lsn(lsn))
        self.number += 1

    def _changes(
        self, version: SchemaVersion, lsn: int, rng: np.random.Generator, first: int
    ) -> tuple[pa.RecordBatch, ChangeCounts]:
        changes = self.options.changes
        # Each round has keys of its own: a table is held if it lacks a row that its source updates.
        keys = np.random.default_rng(int(version.oid)).permutation(self.options.rows)[changes * self.number :][:changes]
        alive = rng.random(changes) >= DELETES if not self.options.toast else np.ones(changes, bool)
        left_out = alive & self.options.toast
        texts = [pa.array([f"new {i} {k}" if a else None for k, a in zip(keys, alive, strict=True)]) for i in range(5)]
        if self.options.toast:
            texts[-1] = pa.nulls(changes, pa.string())
        positions = np.arange(first, first + changes)
        rows = pa.record_batch(
            [
                pa.array(np.full(changes, lsn)),
                pa.array(positions),
                pa.array(positions),
                pa.array(np.where(alive, "update", "delete"))
                .dictionary_encode()
                .cast(pa.dictionary(pa.int8(), pa.string())),
                pa.array(np.full(changes, 7)),
                pa.array(np.full(changes, lsn)).cast(pa.timestamp("us", "UTC")),
                pa.nulls(changes, pa.int64()),
                pa.array([[LARGE] if u else None for u in left_out], pa.list_(pa.int16())),
                pa.nulls(changes, pa.string()),
                pa.array(keys, pa.int64()),
                pa.array(keys % 1000, pa.int32(), mask=~alive),
                pa.array(keys / 3.0, mask=~alive),
                *texts,
            ],
            schema=row_schema(version),
        )
        updates = int(alive.sum())
        return rows, ChangeCounts(0, updates, changes - updates, 0, 0, int(left_out.sum()))

    def cycle(self) -> None:
        """Run lakeproof's cycle."""
        limits = CompactionConfig(threads=self.options.threads)
        source = SourceConfig(name=SOURCE, dsn=SecretStr("host=nowhere"), publication="p", slot="s", compaction=limits)
        config = Config(path=self.lake / "lakeproof.yaml", lake=str(self.lake), sources={SOURCE: source})
        (done,) = compact(config, SOURCE, self.spark, silent, Stop())
        if len(done.tables) != self.options.tables or done.held:
            raise SystemExit(f"{len(done.tables)} tables were written, {len(done.held)} are held")

    def appends(self) -> None:
        """Append as many rows to as many tables, and nothing else."""
        places = [
            (f, str(self.bare / f"{i}-{n}")) for i in range(self.options.tables) for n, f in enumerate(self.frames)
        ]
        with ThreadPoolExecutor(self.options.threads) as pool:
            list(pool.map(lambda work: _append(*work), places))


def _append(rows: DataFrame, url: str) -> None:
    rows.write.format("delta").option("delta.enableDeletionVectors", "true").option(
        "delta.checkpointInterval", "50"
    ).mode("append").save(url)


def main() -> None:
    """Warm up, then measure both in turn."""
    parser = argparse.ArgumentParser(description="Time a cycle over many tables and as many bare appends.")
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--idle", type=int, default=0, help="additional tables without changes")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=int, default=2, help="rounds that do not count")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--toast", action="store_true")
    options = parser.parse_args()
    spark = build_session(SparkConfig(master="local[2]"), "lakeproof bench")
    meter = Meter(spark)
    spent: dict[str, list[Spent]] = {"cycle": [], "appends": []}
    with tempfile.TemporaryDirectory(prefix="lakeproof-bench-") as folder:
        lake = Lake(spark, Path(folder), options)
        works: list[tuple[str, Callable[[], None]]] = [("cycle", lake.cycle), ("appends", lake.appends)]
        for number in range(-options.warm, options.rounds):
            lake.land()
            random.shuffle(works)
            for name, work in works:
                one = meter.measure(work)
                print(f"  round {number} {name}: wall {one.wall:.2f} s, CPU {one.cpu:.2f} s", flush=True)
                if number >= 0:
                    spent[name].append(one)
    pairs = list(zip(spent["cycle"], spent["appends"], strict=True))
    cpu, wall = (statistics.median(getattr(a, n) / getattr(b, n) for a, b in pairs) for n in ("cpu", "wall"))
    print(
        f"{options.tables} tables x {options.changes} changes, toast {options.toast},"
        f" {options.threads} threads, n={len(pairs)}"
    )
    print(f"cycle / {2 * options.tables} bare appends, median of rounds: wall {wall:.2f}, CPU {cpu:.2f}")
    spark.stop()


if __name__ == "__main__":
    main()
