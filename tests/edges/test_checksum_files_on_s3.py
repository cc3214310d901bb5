"""A checksum file of a Delta version on S3 is one conditional put: none replaces another; all else goes Spark's way."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lakeproof.config.location import LakeLocation
from lakeproof.storage.open import open_store
from lakeproof.storage.store import Store
from tests.fix_object_store import S3Server
from tests.object_proxy import Fault, Proxied, object_proxy, putting

pytestmark = pytest.mark.spark
LOG = "shop/t/_delta_log"
CHECKSUM = f"{LOG}/{1:020d}.crc"


@pytest.fixture
def store(s3_lake: LakeLocation) -> Store:
    """The lake's store."""
    return open_store(s3_lake)


class Files:
    """The file manager of one log, whose requests go through a proxy."""

    def __init__(self, spark: SparkSession, store: Store, proxy: Proxied) -> None:
        jvm: Any = spark._jvm
        self.jvm: Any = jvm
        self.store = store
        conf = jvm.org.apache.hadoop.conf.Configuration(spark._jsc.hadoopConfiguration())
        conf.set("fs.s3a.endpoint", proxy.endpoint)
        conf.set("fs.s3a.impl.disable.cache", "true")
        self.files = jvm.lakeproof.ChecksumFiles(self.path(LOG), conf)

    def path(self, key: str) -> Any:
        """A key as Spark names it."""
        return self.jvm.org.apache.hadoop.fs.Path(self.store.url(key))

    def write(self, key: str, data: bytes, *, overwrite: bool = False) -> str | None:
        """Write a file; return the error's class."""
        try:
            out = self.files.createAtomic(self.path(key), overwrite)
            out.write(bytearray(data))
            out.close()
            out.close()
        except Py4JJavaError as error:
            return str(error.java_exception.getClass().getName())
        return None


def test_a_checksum_is_one_conditional_put(spark: SparkSession, store: Store, s3_server: S3Server) -> None:
    """Spark's own way takes 25 requests. These bytes again are success, others are refused, and what is cancelled is not."""
    with object_proxy(s3_server.port) as proxy:
        files = Files(spark, store, proxy)
        assert files.write(CHECKSUM, b"ours") is None
        assert [(r.kind, r.conditional) for r in proxy.seen] == [("PUT", True)]
        assert files.write(CHECKSUM, b"ours") is None
        assert files.write(CHECKSUM, b"theirs") == "java.nio.file.FileAlreadyExistsException"
        out = files.files.createAtomic(files.path(f"{LOG}/{2:020d}.crc"), False)
        out.write(bytearray(b"half"))
        out.cancel()
        out.close()
    assert store.get(CHECKSUM) == b"ours"
    assert store.list(LOG) == [CHECKSUM]


def test_a_checksum_whose_answer_is_lost_is_ours(spark: SparkSession, store: Store, s3_server: S3Server) -> None:
    """The object decides."""
    with object_proxy(s3_server.port) as proxy:
        proxy.faults.append(Fault(putting(".crc"), lose=True))
        assert Files(spark, store, proxy).write(CHECKSUM, b"ours") is None
        assert proxy.faults[0].times == 0
    assert store.get(CHECKSUM) == b"ours"


@pytest.mark.parametrize(
    ("key", "overwrite"), [("shop/stream/commits/7", False), (CHECKSUM, True), (f"{LOG}/other", False)]
)
def test_other_files_go_sparks_way(
    spark: SparkSession, store: Store, s3_server: S3Server, key: str, overwrite: bool
) -> None:
    """A stream's checkpoints above all: under another name first, which is then the file."""
    with object_proxy(s3_server.port) as proxy:
        files = Files(spark, store, proxy)
        files.files.mkdirs(files.path(key).getParent())
        assert files.write(key, b"1", overwrite=overwrite) is None
        assert files.files.exists(files.path(key))
        assert any(".tmp" in request.path for request in proxy.seen)
    assert store.get(key) == b"1"
    assert [f.key for f in store.entries("shop") if f.bytes and "tmp" not in f.key] == [key]
