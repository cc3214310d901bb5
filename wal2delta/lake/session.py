"""The Spark session, with the settings that Delta on a small machine needs.

What is computed in it does not belong here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

from wal2delta.config.model import SparkConfig

# Each with what happens otherwise.
_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A date or timestamp means the same everywhere; another zone also makes Delta rebuild its state at every commit.
    "spark.sql.session.timeZone": "UTC",
    # INT96 otherwise: no statistics, and a type that other readers dislike.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    # 50 tasks for every small operation otherwise (10 s instead of 1).
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "4",
    # A table's size is estimated from its compressed files otherwise: 10 M well compressed rows were taken for 10 MB, and a
    # MERGE sent its whole target to every task (out of memory with a heap of 2 GB).
    "spark.sql.sources.fileCompressionFactor": "10",
    # A plain Python UDF above a Parquet scan hangs for ever in Spark 4.2.0 otherwise (SPARK-58241).
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # Time travel is refused by a version's age otherwise, although all files are there: an idle table at its pinned version.
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
}


def build_session(spark: SparkConfig, app_name: str) -> SparkSession:
    """A session (or the one this process has) with Delta's jars; `spark.conf` wins over every setting here.

    The first call on a machine downloads 33 jars (87 MB). Raises what PySpark raises where no Java is found.
    """
    # Spark's Python workers take `python3` from PATH otherwise: another interpreter, without our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.Builder().master(spark.master).appName(app_name)
    settings = {**_SETTINGS, "spark.driver.memory": spark.driver_memory, **spark.conf}
    for key, value in settings.items():
        builder = builder.config(key, value)
    session: SparkSession = configure_spark_with_delta_pip(builder).getOrCreate()
    session.sparkContext.setLogLevel(spark.conf.get("wal2delta.logLevel", "ERROR"))
    return session


@contextmanager
def with_settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of a caller's own session for as long as the block runs; they are unset afterwards."""
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            session.conf.unset(name)
