"""One Spark session for a run of the tests, small enough for a machine that runs other things too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from wal2delta.config.model import SparkConfig
from wal2delta.lake.session import build_session

SPARK = SparkConfig(
    master="local[2]",
    driver_memory="1g",
    conf={
        # C1 alone: a test runs many small plans once each, and the second compiler would only compete with them. Its 48 MB
        # of code do not do: swept and compiled again, they cost a fifth of a run.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
    },
)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session; stopped when the run ends."""
    session = build_session(SPARK, "wal2delta tests")
    yield session
    session.stop()
