"""What the running checksum of history costs: cycles with it and without it in turn, and one large append.

    python -m bench.history_sum [--tables 20] [--changes 100] [--rounds 5] [--append 1000000]

Both in one session. Without: the same cycle, but its rows are appended as they are. No test belongs here.
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
from lakeproof.config.model import SparkConfig
from lakeproof.lake.cycle import history_commit
from lakeproof.lake.records.history_sum import HistorySum
from lakeproof.lake.rows.history_sum import Summing
from lakeproof.lake.spark.session import build_session
from lakeproof.schema import SchemaVersion


class Bare:
    """In the place of `Summing`: nothing is summed."""

    def __init__(self, shape: SchemaVersion, rows: DataFrame) -> None:
        del shape
        self.rows = rows

    def sum(self) -> HistorySum | None:
        """Of no rows."""
        return HistorySum()


MAKES = {"with": Summing, "without": Bare}


class Append:
    """Rows of history, one append after the other."""

    def __init__(self, lake: Lake, rows: int, place: str) -> None:
        texts = [F.hex(F.xxhash64("id", F.lit(i))).alias(f"t{i}") for i in range(5)]
        base = lake.spark.range(0, rows, 1, 2).select(
            "id", (F.col("id") % 1000).cast("int").alias("n"), (F.col("id") / 7).alias("x"), *texts
        )
        extra = {n: F.lit(None).cast(kind) for n, kind in HISTORY_EXTRA.items()}
        self.rows = base.withColumns({**extra, "_lp_ord": F.col("id"), "_lp_op": F.lit("insert")})
        self.place = place

    def run(self) -> None:
        """One append, as a cycle makes it."""
        summing = getattr(history_commit, "Summing")(VERSION, self.rows)  # noqa: B009  the one that is being measured
        summing.rows.write.format("delta").mode("append").save(self.place)
        summing.sum()


def main() -> None:
    """Warm up, then take both in turn, in another order each round."""
    options = argparse.ArgumentParser(description="Time cycles with and without the checksum of history.")
    options.add_argument("--tables", type=int, default=20)
    options.add_argument("--rows", type=int, default=20_000)
    options.add_argument("--changes", type=int, default=100)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--warm", type=int, default=2, help="rounds that do not count")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--append", type=int, default=1_000_000, help="rows of the large append")
    options.set_defaults(toast=False, idle=0)
    chosen = options.parse_args()
    spark = build_session(SparkConfig(master="local[2]"), "lakeproof bench")
    meter = Meter(spark)
    with tempfile.TemporaryDirectory(prefix="lakeproof-bench-") as folder:
        lake = Lake(spark, Path(folder), chosen)
        append = Append(lake, chosen.append, str(Path(folder) / "append"))
        for what in ("cycle", "append"):
            spent: dict[str, list[Spent]] = {name: [] for name in MAKES}
            for number in range(-chosen.warm, chosen.rounds):
                for name in random.sample(sorted(MAKES), len(MAKES)):
                    setattr(history_commit, "Summing", MAKES[name])  # noqa: B010  what is compared; types know it as a class
                    if what == "cycle":
                        lake.land()
                    one = meter.measure(lake.cycle if what == "cycle" else append.run)
                    print(f"  {what} round {number} {name}: wall {one.wall:.2f} s, CPU {one.cpu:.2f} s", flush=True)
                    spent[name] += [one] if number >= 0 else []
            for of in ("wall", "cpu"):
                medians = {name: statistics.median(getattr(s, of) for s in found) for name, found in spent.items()}
                ratio = medians["with"] / medians["without"]
                print(f"{what}, {of}: {medians['with']:.2f} s with, {medians['without']:.2f} s without, {ratio:.2f}")
    spark.stop()


if __name__ == "__main__":
    main()
