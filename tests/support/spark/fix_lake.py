"""A Spark session for a run of the tests, small enough for a machine that runs other things too."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.config.location import LakeLocation, StorageConfig
from lakeproof.config.section.spark import SparkConfig
from lakeproof.lake.spark.jars import s3_settings
from lakeproof.lake.spark.session import build_session
from lakeproof.lake.spark_on_demand import SparkOnDemand
from tests.support.stores.fix_object_store import S3Server, storage
from tests.support.stores.object_signing import ACCESS, SECRET

# Java 25 warns of it.
VFORK = " -Djdk.lang.Process.launchMechanism=VFORK"
# `make test-all` is without these, as production is.
_CHEAP_PLANS = {
    # Each small plan is run once: to write, compile and load code for it takes an eighth of a cycle.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # A plan of a few rows is planned again after each shuffle otherwise, for up to a tenth of a cycle, and stays as it was.
    "spark.sql.adaptive.enabled": "false",
}
SPARK = SparkConfig(
    master="local[2]",
    # With less, a driver that has served a hundred tests is busy collecting garbage.
    driver_memory="2g",
    conf={
        # C1 alone: a test runs many small plans once each, and the second compiler would only compete with them. Its 48 MB
        # of code do not do: swept and compiled again, they cost a fifth of a run. A heap that begins small is collected
        # twice in a second, and the whole of it each time that classes need more room. Hadoop starts a `chmod` for each
        # file and folder that it makes, which takes half as long by vfork.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
        " -Xmn400m -XX:MetaspaceSize=320m" + VFORK,
        # One task for what fits into one: each costs more than its rows. With two, a cycle takes a sixth more of a core.
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        # Each plan is written out for a page that nobody opens; this way without its details.
        "spark.sql.ui.explainMode": "simple",
        **_CHEAP_PLANS,
        # Each small broadcast takes a whole page, whose size follows the heap's otherwise: 16 MB at 1 GB.
        "spark.buffer.pageSize": "1m",
    },
)


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The session; stopped when the run ends."""
    conf = {key: value for key, value in SPARK.conf.items() if key not in _CHEAP_PLANS}
    settings = SPARK.model_copy(update={"conf": conf}) if request.config.getoption("--full") else SPARK
    # The JVM reads them once, when it starts; a test has its own server and bucket (`s3_lake`).
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", ACCESS)
        environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        session = build_session(settings, "lakeproof tests", s3=StorageConfig())
    yield session
    session.stop()


def _refuse() -> SparkSession:
    raise AssertionError("Spark was asked for")


@pytest.fixture
def no_spark() -> SparkOnDemand:
    """Spark that does not start: what the test does needs none."""
    return SparkOnDemand(_refuse)


@pytest.fixture
def s3_lake(request: pytest.FixtureRequest, s3_server: S3Server, bucket: str) -> LakeLocation:
    """The place of a new lake on S3, which the session reaches if the test has one."""
    location = LakeLocation(f"s3://{bucket}/data/lake", storage(s3_server.endpoint))
    if "spark" in request.fixturenames:
        hadoop = request.getfixturevalue("spark")._jsc.hadoopConfiguration()
        for name, value in s3_settings(location.storage).items():
            if name.startswith("spark.hadoop."):
                hadoop.set(name.removeprefix("spark.hadoop."), value)
    return location


@pytest.fixture
def lake_place(request: pytest.FixtureRequest, tmp_path: Path) -> LakeLocation:
    """The place of a new lake: a folder, or on S3 if the test's parameter is `s3` or `versitygw`."""
    if getattr(request, "param", "folder") == "folder":
        return LakeLocation(str(tmp_path / "lake"))
    place: LakeLocation = request.getfixturevalue("s3_lake")
    return place


@pytest.fixture(autouse=True)
def _forgets_tables(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drop what Delta keeps of a test's tables for an hour: of some hundred tables it fills the driver."""
    yield
    if "spark" in request.fixturenames:
        session = request.getfixturevalue("spark")
        session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        session.catalog.clearCache()


def options_of(access: StorageConfig) -> dict[str, str] | None:
    """The options with which delta-rs reads a lake; None for a folder."""
    if access.endpoint is None:
        return None
    region = str(access.region)
    return {"aws_endpoint_url": access.endpoint, "aws_region": region, "aws_allow_http": "true"}


@contextmanager
def other_file_system(place: Path) -> Iterator[Path]:
    """A new folder below `place`, on another file system, in memory or on a disk; the test is skipped if there is none."""
    for root in (Path("/dev/shm"), Path("/var/tmp")):  # noqa: S108  a folder of its own in it
        if root.is_dir() and root.stat().st_dev != place.stat().st_dev:
            break
    else:
        pytest.skip("there is no second file system")
    folder = Path(tempfile.mkdtemp(prefix="lakeproof-", dir=root))
    below = place / folder.name
    below.symlink_to(folder)
    try:
        yield below
    finally:
        below.unlink()
        shutil.rmtree(folder)
