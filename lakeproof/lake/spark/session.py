"""The Spark session, with the settings that Delta needs anywhere, and what follows from where tasks run.

Looking whether executors reach the lake belongs to `executors.py`, computing in the session to the rooms above.

Where tasks run decides the driver's address, who may talk to it, and into how many parts a shuffle goes.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from lakeproof.config.load import load
from lakeproof.config.location import ObjectPlace, StorageConfig
from lakeproof.config.model import Config
from lakeproof.config.secret import secret_variables
from lakeproof.config.section.spark import SparkConfig, is_local
from lakeproof.config.values import CONNECT, MASTERS
from lakeproof.errors import ConfigError, DefiniteError
from lakeproof.lake.spark.driver import (
    SCRATCH,
    SCRATCH_VARIABLE,
    driver_started,
    filtered_stderr,
    log_option,
    scratch_settings,
    stop_session,
    without,
)
from lakeproof.lake.spark.jars import DELTA, S3, is_on_s3, jars, s3_settings
from lakeproof.lake.spark.java import Java, archive_options, check_java

_LOOPBACK = "127.0.0.1"
# Of this machine's own tasks: each small operation has few rows.
_PARTITIONS_LOCAL = 4
# Spark joins the parts of a shuffle that turn out small, and never splits one: so rather too many than too few.
_PARTITIONS_PER_CORE = 2
_PARTITIONS_MIN, _PARTITIONS_MAX = 4, 1_000
# If the configuration does not say how many cores there are.
_PARTITIONS_UNKNOWN = 32
# Variables by which a person gives the address.
_ADDRESS_VARIABLES = ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME")
# What starts a session of Spark Connect, whatever `spark.master` says: the name, and its value (None: any).
_CONNECT_SETTINGS = {"spark.remote": None, "spark.api.mode": "connect"}
_CONNECT_VARIABLES = {"SPARK_REMOTE": None, "SPARK_API_MODE": "connect", "SPARK_CONNECT_MODE": "1"}
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"


def refuse_connect(spark: SparkConfig) -> None:
    """Raise ConfigError if the session would be one of Spark Connect, which has no JVM of its own; nothing is started."""
    asked = [f"{name} in spark.conf" for name in _set(spark.conf, _CONNECT_SETTINGS)]
    asked += [f"the variable {name}" for name in _set(os.environ, _CONNECT_VARIABLES)]
    if asked:
        raise ConfigError(
            "Spark",
            f"{' and '.join(asked)} would start {CONNECT}",
            f"remove it, and name a master in spark.master: {MASTERS}",
        )


def _set(values: Mapping[str, str], names: Mapping[str, str | None]) -> list[str]:
    return [n for n, value in names.items() if n in values and (value is None or values[n].lower() == value)]


def placed_settings(spark: SparkConfig) -> dict[str, str]:
    """Return the settings that depend on the master; `spark.conf` wins over them."""
    settings = {"spark.sql.shuffle.partitions": str(shuffle_partitions(spark))}
    if is_local(spark.master):
        # Anybody on this machine could otherwise ask the driver for blocks, and send it objects to deserialize.
        return settings | {
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.authenticate": "true",
            **scratch_settings(spark.conf),
        }
    address = None if any(os.environ.get(name) for name in _ADDRESS_VARIABLES) else address_towards(spark.master)
    if address is not None:
        settings["spark.driver.host"] = address
    if spark.secret is not None or spark.master.startswith("k8s://"):
        # On Kubernetes Spark makes the secret itself. YARN's shuffle service would have to ask for one, too.
        settings |= {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
    return settings


def shuffle_partitions(spark: SparkConfig) -> int:
    """Return the number of parts of a shuffle: twice the cores that the configuration asks for."""
    if is_local(spark.master):
        return _PARTITIONS_LOCAL
    cores = _cores(spark.conf)
    if cores is None:
        return _PARTITIONS_UNKNOWN
    return max(_PARTITIONS_MIN, min(_PARTITIONS_MAX, cores * _PARTITIONS_PER_CORE))


def _cores(conf: Mapping[str, str]) -> int | None:
    """Return the number of cores at most, None if the settings do not say it."""
    if conf.get("spark.cores.max"):
        return _whole(conf["spark.cores.max"])
    executors = conf.get("spark.executor.instances") or conf.get("spark.dynamicAllocation.maxExecutors")
    count, each = _whole(executors), _whole(conf.get("spark.executor.cores", "1"))
    return None if count is None or each is None else count * each


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def address_towards(master: str) -> str | None:
    """Return this machine's address on the way to the master, under which executors find the driver.

    None if the master has none (yarn), or its name is not known here: then Spark takes the address of this host's name. No
    packet is sent.
    """
    place = re.sub(r"^(k8s://)?", "", master).split(",")[0]
    parts = urlsplit(place if "://" in place else f"//{place}")
    try:
        host, port = parts.hostname, parts.port or 443
        if not host or master == "yarn":
            return None
        address = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_DGRAM)[0][4]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except (OSError, ValueError):
        return None


@contextmanager
def scratch_given(spark: SparkConfig) -> Iterator[None]:
    """Let the driver of a cluster that starts in the block keep its own shuffles and kept rows in a folder of this user.

    `spark.local.dir` would name the folder for executors, too. Nothing if the configuration or the environment names one.
    """
    if is_local(spark.master) or not scratch_settings(spark.conf):
        yield
        return
    os.environ[SCRATCH_VARIABLE] = scratch_settings(spark.conf)[SCRATCH]
    try:
        yield
    finally:
        del os.environ[SCRATCH_VARIABLE]


@contextmanager
def secret_given(spark: SparkConfig) -> Iterator[None]:
    """Let a driver that starts in the block read the cluster's secret from a file of this user, which goes afterwards.

    A setting would stand in the driver's command line, for everybody on this machine. Raises ConfigError as
    `Secret.resolve`.
    """
    if spark.secret is None:
        yield
        return
    value = spark.secret.resolve().strip().replace("\\", "\\\\")
    before = os.environ.get(_SUBMIT_ARGUMENTS)
    with tempfile.TemporaryDirectory(prefix="lakeproof-spark-") as folder:
        file = Path(folder) / "secret.properties"
        file.write_text(f"spark.authenticate.secret={value}\n", encoding="utf-8")
        options = f"--properties-file {file} --load-spark-defaults"
        os.environ[_SUBMIT_ARGUMENTS] = f"{options} {before or 'pyspark-shell'}"
        try:
            yield
        finally:
            os.environ.pop(_SUBMIT_ARGUMENTS)
            if before is not None:
                os.environ[_SUBMIT_ARGUMENTS] = before


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
    # PySpark sends the JVM the file and line of each call that makes a column or a frame otherwise, in five round trips:
    # lines of this package, which no error of ours has.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # A date or timestamp means the same everywhere.
    "spark.sql.session.timeZone": "UTC",
    # INT96 otherwise: no statistics, and a type that other readers dislike.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    # 50 tasks for every small operation otherwise (10 s instead of 1).
    "spark.databricks.delta.snapshotPartitions": "2",
    # Delta keeps the state of each log for an hour, 1 to 8 MB of the driver's memory each, and of 10,000 of them otherwise:
    # two for each table.
    "spark.databricks.delta.delta.log.cacheSize": "100",
    # A table's size is estimated from its compressed files otherwise: 10 M well compressed rows are taken for 10 MB, and a
    # join sends them all to every task (out of memory with a heap of 2 GB).
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
            driver_started(spark.conf.get("spark.driver.memory", spark.driver_memory), lines)
    session.sparkContext.setLogLevel("ERROR")
    return session


def _all_settings(spark: SparkConfig, s3: StorageConfig | None, java: Java | None) -> dict[str, str]:
    store = {} if s3 is None else s3_settings(s3)
    memory = {"spark.driver.memory": spark.driver_memory}
    settings = {**_SETTINGS, **placed_settings(spark), **store, **memory, **spark.conf}
    ours = jars(sets=(DELTA,) if s3 is None else (DELTA, S3))
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
