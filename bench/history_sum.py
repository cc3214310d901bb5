"""Measures the cost of the running checksum of history: cycles with and without it in turn, and one large append.

    python -m bench.history_sum [--tables 20] [--changes 100] [--rounds 5] [--append 1000000]

Both run in one session. Without the checksum, the same cycle appends its rows as they are. No test belongs here.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench.cycle import HISTORY_EXTRA, VERSION, Meter, Spent
from bench.many_tables import Lake
from lakeproof.config.section.spark import SparkConfig
from lakeproof.lake.cycle import commits_by_spark
from lakeproof.lake.records.documents import HistorySum
from lakeproof.lake.rows.history_sum import Summing
from lakeproof.lake.spark.session import build_session
from lakeproof.schema import SchemaVersion


class Bare:
    """A replacement for `Summing` that computes no sum."""

    def __init__(self, schema: SchemaVersion, rows: DataFrame) -> None:
        del schema
        self.rows = rows

    def sum(self) -> HistorySum | None:
        """Return the sum of no rows."""
        return HistorySum()


MAKES = {"with": Summing, "without": Bare}


class Append:
    """Rows of history, one append after the other."""

    def __init__(self, lake: Lake, rows: int, url: str) -> None:
        texts = [F.hex(F.xxhash64("id", F.lit(i))).alias(f"t{i}") for i in range(5)]
        base = lake.spark.range(0, rows, 1, 2).select(
            "id", (F.col("id") % 1000).cast("int").alias("n"), (F.col("id") / 7).alias("x"), *texts
        )
        extra = {n: F.lit(None).cast(kind) for n, kind in HISTORY_EXTRA.items()}
        self.rows = base.withColumns({**extra, "_lp_ord": F.col("id"), "_lp_op": F.lit("insert")})
        self.url = url

    def run(self) -> None:
        """Append once, as a cycle does."""
        summing = getattr(commits_by_spark, "Summing")(VERSION, self.rows)  # noqa: B009  the class that is being measured
        summing.rows.write.format("delta").mode("append").save(self.url)
        summing.sum()


def main() -> None:
    """Warm up, then measure both in turn, in a different order each round."""
    parser = argparse.ArgumentParser(description="Time cycles with and without the checksum of history.")
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm", type=int, default=2, help="rounds that do not count")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--append", type=int, default=1_000_000, help="rows of the large append")
    parser.set_defaults(toast=False, idle=0)
    options = parser.parse_args()
    spark = build_session(SparkConfig(master="local[2]"), "lakeproof bench")
    meter = Meter(spark)
    with tempfile.TemporaryDirectory(prefix="lakeproof-bench-") as folder:
        lake = Lake(spark, Path(folder), options)
        append = Append(lake, options.append, str(Path(folder) / "append"))
        for task in ("cycle", "append"):
            spent: dict[str, list[Spent]] = {name: [] for name in MAKES}
            for number in range(-options.warm, options.rounds):
                for name in random.sample(sorted(MAKES), len(MAKES)):
                    setattr(commits_by_spark, "Summing", MAKES[name])  # noqa: B010  replaces the class that is measured
                    if task == "cycle":
                        lake.land()
                    one = meter.measure(lake.cycle if task == "cycle" else append.run)
                    print(f"  {task} round {number} {name}: wall {one.wall:.2f} s, CPU {one.cpu:.2f} s", flush=True)
                    spent[name] += [one] if number >= 0 else []
            for clock in ("wall", "cpu"):
                medians = {name: statistics.median(getattr(s, clock) for s in runs) for name, runs in spent.items()}
                ratio = medians["with"] / medians["without"]
                print(f"{task}, {clock}: {medians['with']:.2f} s with, {medians['without']:.2f} s without, {ratio:.2f}")
    spark.stop()


if __name__ == "__main__":
    main()
