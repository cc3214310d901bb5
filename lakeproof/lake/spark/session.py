"""The Spark session, with the settings that Delta needs anywhere, and the error of a lost driver.

Settings that follow from the master belong to `cluster.py`, computing in the session to the rooms above.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from lakeproof.config.load import load
from lakeproof.config.location import ObjectPlace, StorageConfig
from lakeproof.config.model import Config
from lakeproof.config.secret import secret_variables
from lakeproof.config.section.spark import SparkConfig, is_local
from lakeproof.errors import ConfigError, DefiniteError
from lakeproof.lake.spark.cluster import placed_settings, refuse_connect, scratch_given, secret_given
from lakeproof.lake.spark.driver import driver_started, filtered_stderr, log_option, stop_session, without
from lakeproof.lake.spark.jars import is_on_s3, jars, jars_with_s3, s3_settings
from lakeproof.lake.spark.java import Java, archive_options, check_java

# Each with what happens otherwise.
_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What is kept for the UI, which is off: the plans and numbers of 1,000 queries otherwise. Whoever switches it on in
    # `spark.conf` raises these there, too.
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.ui.retainedTasks": "10",
    # A date or timestamp means the same everywhere; another zone also makes Delta rebuild its state at every commit.
    "spark.sql.session.timeZone": "UTC",
    # INT96 otherwise: no statistics, and a type that other readers dislike.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    # 50 tasks for every small operation otherwise (10 s instead of 1).
    "spark.databricks.delta.snapshotPartitions": "2",
    # Delta keeps the state of each log for an hour, 1 to 8 MB of the driver's memory each, and of 10,000 of them otherwise:
    # two for each table.
    "spark.databricks.delta.delta.log.cacheSize": "100",
    # A table's size is estimated from its compressed files otherwise: 10 M well compressed rows were taken for 10 MB, and a
    # MERGE sent its whole target to every task (out of memory with a heap of 2 GB).
    "spark.sql.sources.fileCompressionFactor": "10",
    # A plain Python UDF above a Parquet scan hangs for ever in Spark 4.2.0 otherwise (SPARK-58241).
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
    # What was written to disk of kept rows is otherwise held in memory too, a hundred batches of them.
    "spark.serializer.objectStreamReset": "1",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # Time travel is refused by a version's age otherwise, although all files are there: an idle table at its pinned version.
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
}


def session(config: Config | str | Path | None = None, app_name: str = "lakeproof") -> SparkSession:
    """Return a session that reads and writes lakes: that of a configuration, loaded or by its file's path.

    None: the file that LAKEPROOF_CONFIG names, else lakeproof.yaml. Raises ConfigError for a configuration with mistakes,
    and as `build_session`.
    """
    loaded = config if isinstance(config, Config) else load(None if config is None else Path(config))
    secrets = secret_variables(source.dsn for source in loaded.sources.values()) | loaded.spark.secret_variables
    _check_connector(loaded)
    return build_session(loaded.spark, app_name, secrets=secrets, s3=loaded.storage if is_on_s3(loaded.lake) else None)


def _check_connector(config: Config) -> None:
    """Raise ConfigError if Spark can't reach the lake's store."""
    place = ObjectPlace.parse(config.lake)
    given = any(config.spark.conf.get(name) for name in ("spark.jars", "spark.jars.packages"))
    if place is not None and place.scheme != "s3" and not given:
        raise ConfigError(
            f"lake {config.lake}",
            f"Spark has no connector for {place.scheme}://, and lakeproof brings one for S3 alone",
            "name Hadoop's connector for it in `spark.conf`, as spark.jars.packages",
        )


def build_session(
    spark: SparkConfig, app_name: str, *, secrets: Collection[str] = (), s3: StorageConfig | None = None
) -> SparkSession:
    """Return a session (or the one this process has) with Delta's jars; `spark.conf` wins over every setting here.

    The variables `secrets` are not in the driver's environment. `s3`: the way to S3 if a lake is there. The first call on a
    machine fetches the jars (12 MB, and 12 MB more for S3). Raises ConfigError if the session would be one of Spark
    Connect, DefiniteError if there is no Java that fits, or the driver does not start.
    """
    refuse_connect(spark)
    is_there = SparkSession.getActiveSession() is not None
    java = None if is_there else check_java()
    # Spark's Python workers take `python3` from PATH otherwise: another interpreter, without our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.Builder().master(spark.master).appName(app_name)
    for key, value in _all_settings(spark, s3, java).items():
        builder = builder.config(key, value)
    with secret_given(spark), scratch_given(spark), without(secrets), filtered_stderr() as lines:
        try:
            session: SparkSession = builder.getOrCreate()
        except PySparkRuntimeError as error:
            message = (
                next((line for line in lines if "rror" in line), None) or error.getCondition() or "it gave no reason"
            )
            remedy = "see spark.driver_memory and spark.conf in the configuration"
            raise DefiniteError("Spark", f"its driver did not start ({message[:300]})", remedy) from None
        if not is_there:
            driver_started(lines)
    session.sparkContext.setLogLevel("ERROR")
    return session


def _all_settings(spark: SparkConfig, s3: StorageConfig | None, java: Java | None) -> dict[str, str]:
    store = {} if s3 is None else s3_settings(s3)
    memory = {"spark.driver.memory": spark.driver_memory}
    settings = {**_SETTINGS, **placed_settings(spark), **store, **memory, **spark.conf}
    ours = jars() if s3 is None else jars_with_s3()
    settings["spark.jars"] = ",".join([*map(str, ours), *filter(None, [spark.conf.get("spark.jars")])])
    classes = "" if java is None or not is_local(spark.master) else archive_options(java, ours[0].parent)
    options = " ".join(filter(None, [log_option(), classes, spark.conf.get("spark.driver.extraJavaOptions")]))
    if options:
        settings["spark.driver.extraJavaOptions"] = options
    return settings


def end_driver(session: SparkSession) -> None:
    """End a session and the JVM that this process has started for it: the next session starts another one."""
    context: Any = SparkContext
    # PySpark has no public name for its JVM.
    gateway = context._gateway  # noqa: SLF001  as above
    stop_session(session)
    if gateway is not None and getattr(gateway, "proc", None) is not None:
        gateway.shutdown()
        gateway.proc.kill()
        gateway.proc.wait()
    context._gateway = context._jvm = None  # noqa: SLF001  as above
