"""One commit of 10 k changes into 100 k and into 10 M rows: the apply contract's ways beside the textbook MERGE.

    python -m bench.lake.apply [--rows 100000 10000000] [--changes 10000] [--rounds 3]

Changes are of random keys (a tenth are deletes) and, in a second part, of keys above all others. All sizes and ways
take turns in every round, so that a busy machine is busy for all; compare the ratios of one round. No test belongs here.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from delta.tables import DeltaTable
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.lake.cycle import DELETES, KINDS, Meter, Spent
from lakeproof.config.section.spark import SparkConfig
from lakeproof.lake.delta.apply import CommitRequest, apply_change
from lakeproof.lake.delta.committer import Applied, CommitInfo
from lakeproof.lake.delta.log.commits import newest_version
from lakeproof.lake.delta.log.protocol import TableSpec
from lakeproof.lake.rows.change import FIRST, NetChange, Removed
from lakeproof.lake.spark.session import build_session

FEW, MANY, TEXTBOOK = "keys collected", "many keys joined", "textbook MERGE"
CHECKED, CHECKED_MANY = "checked, keys collected", "joined after a check"
CONTENDERS = (FEW, CHECKED, MANY, CHECKED_MANY, TEXTBOOK)
RANDOM, APPENDED = "random keys", "appended keys"


@dataclass(slots=True)
class Target:
    """Tables with the same `rows` rows, one for each contender."""

    spark: SparkSession
    folder: Path
    rows: int
    next_key: int = 0
    number: int = 1
    spent: dict[tuple[str, str], list[Spent]] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    presupposed: int = 0

    def fill(self) -> None:
        """Write the tables; their texts don't compress, since otherwise reading all columns would cost nothing."""
        texts = [F.hex(F.xxhash64("id", F.lit(i))).alias(f"t{i}") for i in range(5)]
        table = self.spark.range(self.rows).select(
            "id", (F.col("id") % 1000).cast("int").alias("n"), (F.col("id") / 7).alias("x"), *texts
        )
        for name in CONTENDERS:
            change, info = NetChange(images=table), CommitInfo("bench", 1, "{}")
            apply_change(self.spark, CommitRequest(self.url(name), change, info, create=TableSpec()))
        self.next_key = self.rows

    def url(self, name: str) -> str:
        """Return the URL of a contender's table."""
        return str(self.folder / f"{name.split(maxsplit=1)[0]}{self.rows}")

    def batch(self, changes: int, kind: str) -> str:
        """Write a file of changes, one per key, and return it."""
        rng = np.random.default_rng(self.number)
        if kind == RANDOM:
            keys = np.sort(rng.choice(self.rows, changes, replace=False))
            gone = rng.random(changes) < DELETES
        else:
            keys = np.arange(self.next_key, self.next_key + changes)
            gone = np.zeros(changes, bool)
            self.next_key += changes
        exists = np.array([kind == RANDOM and int(k) not in self.gone for k in keys])
        self.gone = (self.gone | set(keys[gone].tolist())) - set(keys[~gone].tolist())
        self.presupposed = int(exists.sum())
        texts = {f"t{i}": pa.array([f"new {i} {self.number} {k}" for k in keys]) for i in range(5)}
        columns = {
            "id": keys,
            "n": pa.array(keys % 1000, pa.int32()),
            "x": keys / 3.0,
            **texts,
            "gone": gone,
            "exists": exists,
        }
        url = str(self.folder / f"batch{self.rows}-{self.number}.parquet")
        pq.write_table(pa.table(columns), url)
        return url

    def ours(self, name: str, url: str, changes: int) -> Applied:
        """Commit with lakeproof."""
        session = self.spark.newSession()
        rows = session.read.parquet(url)
        images = rows.where("NOT gone").drop("gone", "exists")
        info = CommitInfo("bench", self.number, "{}")
        deletes = rows.select("id", F.when(F.col("exists"), F.col("id")).alias(FIRST))
        presupposed = self.presupposed if name in {CHECKED, CHECKED_MANY} else None
        change = NetChange(Removed(("id",), deletes, presupposed=presupposed), images)
        max_keys = changes if name in {FEW, CHECKED} else None
        return apply_change(session, CommitRequest(self.url(name), change, info, max_keys))

    def textbook(self, url: str) -> None:
        """Commit as a tutorial does."""
        source = self.spark.read.parquet(url)
        values: dict[str, str | SparkColumn] = {n: f"s.{n}" for n in KINDS}
        merge = DeltaTable.forPath(self.spark, self.url(TEXTBOOK)).alias("t").merge(source.alias("s"), "t.id = s.id")
        merge = merge.whenMatchedDelete("s.gone").whenMatchedUpdate(set=values)
        merge.whenNotMatchedInsert("NOT s.gone", values=values).execute()

    def contenders(self, changes: int, kind: str) -> list[tuple[str, Callable[[], None]]]:
        """Commit one batch with every contender."""
        self.number += 1
        url = self.batch(changes, kind)
        return [
            *((name, partial(self._ours, name, url, changes)) for name in CONTENDERS if name != TEXTBOOK),
            (TEXTBOOK, partial(self.textbook, url)),
        ]

    def _ours(self, name: str, url: str, changes: int) -> None:
        self.ours(name, url, changes)

    def is_equal(self) -> bool:
        """Return True if all contenders have the same rows."""
        digests = {_digest(self.spark.read.format("delta").load(self.url(n))) for n in CONTENDERS}
        return len(digests) == 1


def _digest(frame: DataFrame) -> tuple[int, int]:
    row = frame.select(F.xxhash64(*KINDS).cast("decimal(20,0)").alias("h")).agg(F.count("*"), F.sum("h")).first()
    return (0, 0) if row is None else (int(row[0]), int(row[1] or 0))


def _round(meter: Meter, targets: list[Target], changes: int, kind: str, *, kept: bool) -> None:
    todo = [(t, name, work) for t in targets for name, work in t.contenders(changes, kind)]
    random.shuffle(todo)
    for target, name, work in todo:
        spent = meter.measure(work)
        if kept:
            target.spent.setdefault((kind, name), []).append(spent)


def _print(targets: list[Target], changes: int, kind: str) -> None:
    print(
        f"{changes} changes, {kind}: seconds min / median, CPU seconds median, CPU and wall as a part of the textbook's"
    )
    for target in targets:
        base = target.spent[kind, TEXTBOOK]
        for name in CONTENDERS:
            spent = target.spent[kind, name]
            walls, cpus = [s.wall for s in spent], [s.cpu for s in spent]
            cpu = statistics.median(s.cpu / b.cpu for s, b in zip(spent, base, strict=True))
            wall = statistics.median(s.wall / b.wall for s, b in zip(spent, base, strict=True))
            print(
                f"  {target.rows:>11,} rows  {name:<26} {min(walls):6.2f} / {statistics.median(walls):6.2f}"
                f"  {statistics.median(cpus):6.2f}  CPU {cpu:.2f}  wall {wall:.2f}"
            )
    small, large = targets[0], targets[-1]
    for name in CONTENDERS if len(targets) > 1 else ():
        pairs = list(zip(large.spent[kind, name], small.spent[kind, name], strict=True))
        cpu = statistics.median(a.cpu / b.cpu for a, b in pairs)
        wall = statistics.median(a.wall / b.wall for a, b in pairs)
        print(f"  {large.rows:,} rows / {small.rows:,} rows, {name}: CPU {cpu:.2f}, wall {wall:.2f}")


def main() -> None:
    """Fill, warm up, then measure all in turn."""
    parser = argparse.ArgumentParser(description="Time one commit of the apply contract.")
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 10_000_000])
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=int, default=2, help="rounds that do not count")
    options = parser.parse_args()
    spark = build_session(SparkConfig(master="local[2]"), "lakeproof bench")
    meter = Meter(spark)
    with tempfile.TemporaryDirectory(prefix="lakeproof-bench-") as folder:
        targets = [Target(spark, Path(folder), rows) for rows in sorted(options.rows)]
        for target in targets:
            target.fill()
        for kind in (RANDOM, APPENDED):
            for number in range(-options.warm, options.rounds):
                _round(meter, targets, options.changes, kind, kept=number >= 0)
            _print(targets, options.changes, kind)
        for target in targets:
            versions = newest_version(target.url(FEW))
            print(f"{target.rows:,} rows: equal: {target.is_equal()}; {versions} commits", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
