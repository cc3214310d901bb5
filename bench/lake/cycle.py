"""Times a cycle of 10 k changes into 100 k and 10 M rows, against the textbook MERGE of the same changes in the same run.

    python -m bench.lake.cycle [--rows 100000 10000000] [--changes 10000] [--rounds 5]

Seconds and CPU depend on the machine; compare the ratio of both within one round. A cycle does more than the MERGE: it
includes history, fsync, the intent and the cut. No test belongs here.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from delta.tables import DeltaTable
from pydantic import SecretStr
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakeproof.change_counts import ChangeCounts
from lakeproof.commands.compact import compact
from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.section.spark import SparkConfig
from lakeproof.events import Stop, silent
from lakeproof.lake.delta.apply import CommitRequest, apply_change
from lakeproof.lake.delta.committer import CommitInfo
from lakeproof.lake.delta.log.protocol import TableSpec
from lakeproof.lake.records.documents import Cut, CutTable, CycleKind
from lakeproof.lake.records.store import write_cut
from lakeproof.lake.rows.change import NetChange
from lakeproof.lake.spark.session import build_session
from lakeproof.landing.chain import Chain, NewHead
from lakeproof.landing.segments.manifest import ChainSource
from lakeproof.landing.segments.segment import SegmentWriter
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, Oid, TableName
from lakeproof.pgoutput.rows import Batch, SchemaInForce, TableBatch, row_schema
from lakeproof.schema import Column, Identity, SchemaVersion
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import now_text

SOURCE = "bench"
WRITER = "0" * 32
DELETES = 0.1
KINDS = {"id": ("int8", 20), "n": ("int4", 23), "x": ("float8", 701), **{f"t{i}": ("text", 25) for i in range(5)}}
VERSION = SchemaVersion(
    TableName("public", "item"),
    Oid(16384),
    Identity.DEFAULT,
    tuple(Column(n, Oid(o), -1, k, k, i, n == "id") for i, (n, (k, o)) in enumerate(KINDS.items(), start=1)),
    ("id",),
)
HISTORY_EXTRA = {
    "_lp_ord": "bigint",
    "_lp_lsn": "bigint",
    "_lp_seq": "bigint",
    "_lp_op": "string",
    "_lp_xid": "bigint",
    "_lp_commit_time": "timestamp",
    "_lp_text": "string",
    "_lp_key": "string",
    "_lp_from": "string",
    "_lp_commit_number": "bigint",
}


def with_places(rows: DataFrame) -> DataFrame:
    """Return `rows`, which have an `id`, with current's hidden columns added."""
    nothing = F.lit(None).cast("string")
    return rows.withColumns({"_lp_text": nothing, "_lp_ord": F.col("id"), "_lp_from": nothing})


@dataclass(frozen=True, slots=True)
class Spent:
    """Wall seconds and CPU seconds of the JVM and this process."""

    wall: float
    cpu: float


class Bench:
    """A lake with one table of `rows` rows at its first cut, and a bare copy for the textbook MERGE."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int) -> None:
        self.spark = spark
        self.rows = rows
        self.lake = folder / f"lake{rows}"
        self.copy = str(folder / f"copy{rows}")
        self.source_lake = SourceLake.open(str(self.lake), SOURCE)
        head = ChainSource("1", 1, "bench", 16384, "bench", "bench", 180006)
        self.chain = Chain.create(self.source_lake, Incarnation(1), NewHead(Lsn(1), head, WRITER))
        # An update or delete of a row that an earlier round has deleted would rightly hold the table.
        self.living = np.ones(rows, dtype=bool)
        self._fill()

    def _fill(self) -> None:
        # The texts don't compress: otherwise 10 M rows would take 40 MB, and reading all columns would cost nothing.
        texts = [F.hex(F.xxhash64("id", F.lit(i))).alias(f"t{i}") for i in range(5)]
        base = self.spark.range(self.rows).select(
            "id", (F.col("id") % 1000).cast("int").alias("n"), (F.col("id") / 7).alias("x"), *texts
        )
        first = CommitInfo("bench", 1, "{}")
        table = VERSION.table
        current = with_places(base)
        history = base.limit(0)
        for name, kind in HISTORY_EXTRA.items():
            history = history.withColumn(name, F.lit(None).cast(kind))
        urls = [
            self.source_lake.url(self.source_lake.paths.current(table)),
            self.source_lake.url(self.source_lake.paths.history(table)),
            self.copy,
        ]
        for url, rows in zip(urls, (current, history, base), strict=True):
            apply_change(self.spark, CommitRequest(url, NetChange(images=rows), first, create=TableSpec()))
        state = CutTable(Lsn(1), Lsn(1), 0, 0, VERSION, Incarnation(1), Incarnation(1))
        cut = Cut(
            CycleNumber(1), CycleKind.APPLY, Incarnation(1), Lsn(1), None, {table: state}, 1, "0" * 64, now_text()
        )
        write_cut(self.source_lake, cut)

    def land(self, changes: int, number: int) -> str:
        """Land one segment with updates and deletes of random rows; return the URL of its file."""
        rng = np.random.default_rng(number)
        keys = rng.choice(np.flatnonzero(self.living), changes, replace=False)
        ops = np.where(rng.random(changes) < DELETES, "delete", "update")
        alive = ops == "update"
        self.living[keys] = alive
        lsn = int(self.chain.end) + 1000
        texts = [pa.array([f"new {i} {k}" if a else None for k, a in zip(keys, alive, strict=True)]) for i in range(5)]
        rows = pa.record_batch(
            [
                pa.array(np.full(changes, lsn)),
                pa.array(np.arange(changes)),
                pa.array(np.arange(changes)),
                pa.array(ops).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
                pa.array(np.full(changes, 7)),
                pa.array(np.full(changes, lsn)).cast(pa.timestamp("us", "UTC")),
                pa.nulls(changes, pa.int64()),
                pa.nulls(changes, pa.list_(pa.int16())),
                pa.nulls(changes, pa.string()),
                pa.array(keys, pa.int64()),
                pa.array(keys % 1000, pa.int32(), mask=~alive),
                pa.array(keys / 3.0, mask=~alive),
                *texts,
            ],
            schema=row_schema(VERSION),
        )
        updates = int(alive.sum())
        counts = ChangeCounts(0, updates, changes - updates, 0, 0, 0)
        schemas = [SchemaInForce(VERSION, Lsn(lsn), 0)] if number == 0 else []
        segment = SegmentWriter(self.chain, WRITER)
        segment.add(Batch([TableBatch(VERSION, rows, counts)], 1, changes, Lsn(lsn), lsn, lsn, schemas, [], changes))
        manifest = segment.finish(Lsn(lsn))
        return self.source_lake.url(f"{self.source_lake.paths.landing(Incarnation(1))}/{manifest.files[0].path}")

    def cycle(self) -> None:
        """Run lakeproof's cycle."""
        source = SourceConfig(name=SOURCE, dsn=SecretStr("host=nowhere"), publication="p", slot="s")
        config = Config(path=self.lake / "lakeproof.yaml", lake=str(self.lake), sources={SOURCE: source})
        compact(config, SOURCE, self.spark, silent, Stop())

    def textbook(self, url: str) -> None:
        """Run the MERGE of a tutorial: the newest row of each key, matched updates and deletes, not matched inserts."""
        newest = Window.partitionBy("id").orderBy(F.col("_lp_ord").desc())
        source = self.spark.read.parquet(url).withColumn("rank", F.row_number().over(newest)).where("rank = 1")
        values: dict[str, str | SparkColumn] = {n: f"s.{n}" for n in KINDS}
        merge = DeltaTable.forPath(self.spark, self.copy).alias("t").merge(source.alias("s"), "t.id = s.id")
        merge = merge.whenMatchedDelete("s._lp_op = 'delete'").whenMatchedUpdate(set=values)
        merge.whenNotMatchedInsert("s._lp_op <> 'delete'", values=values).execute()

    def equal(self) -> bool:
        """Return True if both have the same rows."""
        current = self.spark.read.format("delta").load(
            self.source_lake.url(self.source_lake.paths.current(VERSION.table))
        )
        return _digest(current) == _digest(self.spark.read.format("delta").load(self.copy))


def _digest(frame: DataFrame) -> tuple[int, int]:
    hashed = frame.select(F.xxhash64(*KINDS).cast("decimal(20,0)").alias("h"))
    row = hashed.agg(F.count("*"), F.sum("h")).first()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


class Meter:
    """CPU and memory of the JVM and of this process, from /proc."""

    def __init__(self, spark: SparkSession) -> None:
        jvm = spark._jvm  # noqa: SLF001  PySpark has no public way to its JVM
        if jvm is None:
            raise SystemExit("the Spark session has no JVM of its own; run it with a local master")
        self.pids = ("self", str(jvm.java.lang.ProcessHandle.current().pid()))

    def measure(self, work: Callable[[], None]) -> Spent:
        """Run a function once and return what it spent."""
        cpu, wall = self._cpu(), time.perf_counter()
        work()
        return Spent(time.perf_counter() - wall, self._cpu() - cpu)

    def peak_rss_mb(self) -> list[int]:
        """Return the peak memory in MB of this process and of the JVM."""
        return [self._peak(pid) for pid in self.pids]

    def _cpu(self) -> float:
        ticks = 0
        for pid in self.pids:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / 100

    @staticmethod
    def _peak(pid: str) -> int:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    """Warm up once, then measure both in turn."""
    parser = argparse.ArgumentParser(description="Time a cycle and the textbook MERGE.")
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 10_000_000])
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    spark = build_session(SparkConfig(master="local[2]"), "lakeproof bench")
    meter = Meter(spark)
    with tempfile.TemporaryDirectory(prefix="lakeproof-bench-") as folder:
        for rows in options.rows:
            bench = Bench(spark, Path(folder), rows)
            cycles, merges = [], []
            for number in range(options.rounds + 1):
                url = bench.land(options.changes, number)
                pair: list[tuple[str, Callable[[], None]]] = [
                    ("cycle", bench.cycle),
                    ("merge", partial(bench.textbook, url)),
                ]
                random.shuffle(pair)
                spent = {name: meter.measure(work) for name, work in pair}
                if number:
                    cycles.append(spent["cycle"])
                    merges.append(spent["merge"])
            _print(rows, options.changes, cycles, merges)
            print(f"  equal: {bench.equal()}; peak RSS in MB (Python, JVM): {meter.peak_rss_mb()}", flush=True)
    spark.stop()


def _print(rows: int, changes: int, cycles: list[Spent], merges: list[Spent]) -> None:
    print(f"{changes} changes into {rows} rows, n={len(cycles)}")
    for name, spent in (("cycle", cycles), ("textbook MERGE", merges)):
        walls, cpus = [s.wall for s in spent], [s.cpu for s in spent]
        wall, cpu = statistics.median(walls), statistics.median(cpus)
        print(f"  {name}: wall min {min(walls):.2f} median {wall:.2f} s, CPU median {cpu:.2f} s")
    wall = statistics.median(c.wall / m.wall for c, m in zip(cycles, merges, strict=True))
    cpu = statistics.median(c.cpu / m.cpu for c, m in zip(cycles, merges, strict=True))
    print(f"  cycle / MERGE, median of rounds: wall {wall:.2f}, CPU {cpu:.2f}")


if __name__ == "__main__":
    main()
