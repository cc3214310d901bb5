"""A driver of a cluster in a process of its own, for what no command shows.

    python -m tests.support.spark.cluster_process CONFIG FOLDER

It prints a line and waits for one, each time that the test is to lose workers. Starting and ending them belongs to the test.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.config.load import load
from lakeproof.config.location import LakeLocation
from lakeproof.errors import LakeproofError
from lakeproof.hidden_columns import ORD
from lakeproof.lake.rows.correction import numbered
from lakeproof.lake.spark.executors import check_executors
from lakeproof.lake.spark.session import session

_WAIT_S = 5.0


def numbers(rows: DataFrame) -> int:
    """A sum that differs if a row has another number."""
    return int(rows.agg(F.sum(F.xxhash64("v", ORD).bitwiseAND(F.lit((1 << 30) - 1)))).collect()[0][0])


def refusal(spark: SparkSession, lake: LakeLocation) -> str:
    """The error about a lake, in one line."""
    try:
        check_executors(spark, lake, _WAIT_S)
    except LakeproofError as error:
        return f"{type(error).__name__}: {error}".replace("\n", " ")
    return "none"


def answer(line: object) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def ask(line: object) -> None:
    """Print it, and wait until the test has acted."""
    answer(line)
    sys.stdin.readline()


def main(config: Path, folder: Path) -> None:
    """See the module's docstring."""
    spark = session(config)
    # Parts of several tasks meet in each partition, in the order in which they come.
    rows = spark.range(0, 50_000, 1, 8).selectExpr("id % 977 AS k", "cast(id AS string) AS v").repartition(2, "k")
    given = numbered(spark, rows, 1)
    ask(numbers(given.frame))
    ask(numbers(given.frame))
    ask(refusal(spark, LakeLocation(str(folder))))
    answer(refusal(spark, load(config).location))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
