"""What follows from where tasks run: the driver's address, who may talk to it, and into how many parts a shuffle goes.

Settings that are the same everywhere belong to `session.py`; looking whether executors reach the lake to `executors.py`.
"""

from __future__ import annotations

import os
import re
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from lakeproof.config.section.spark import SparkConfig, is_local
from lakeproof.config.values import CONNECT, MASTERS
from lakeproof.errors import ConfigError
from lakeproof.lake.spark.driver import SCRATCH, SCRATCH_VARIABLE, scratch_settings

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
