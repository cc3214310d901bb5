"""A full disk, and a driver that is gone, are never taken for damage of what was read or written."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from lakeproof.errors import LakeError, NoRoomError, StoreRefusesError, TransientError, UnreadableRowsError
from lakeproof.lake.delta.log.commits import LogGapError
from lakeproof.lake.spark.failures import concerns_all, reading, store_refusal
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.proof import tables as proving
from lakeproof.proof.compare import Buckets, FilledBuckets
from lakeproof.proof.lake import history_by_spark as histories
from lakeproof.proof.lake.history import check_history, prove_history
from lakeproof.proof.lake.side import LakeReader, LakeSide
from lakeproof.proof.result import TableProof
from lakeproof.storage.source_lake import SourceLake
from tests.core.lake.lake_document_samples import CUT, TABLE

FULL = PySparkException("[TASK_WRITE_FAILED] Task failed. Caused by: java.io.IOException: No space left on device")
NO_MEMORY = PySparkException("Job aborted due to stage failure: java.lang.OutOfMemoryError: Java heap space")
UNREADABLE = PySparkException("[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///lake/x.parquet.")
AT = CUT.tables[TABLE]
PATHS = SourceLake.open("/lake", "shop")


def session(process: subprocess.Popen[bytes] | None = None) -> Any:
    """Return a session with only the parts that are called; its driver lives unless `process` has ended."""
    context = SimpleNamespace(_gateway=SimpleNamespace(proc=process))
    return SimpleNamespace(sparkContext=context, newSession=lambda: session(process))


def raising(error: Exception) -> Callable[..., Any]:
    """Return what raises it, whatever it is called with."""

    def called(*_: Any, **__: Any) -> Any:
        raise error

    return called


@pytest.mark.parametrize(
    "error", [FULL, NO_MEMORY, TransientError("t", "r", "m"), NoRoomError("t", "r", "m"), OSError(28, "full")]
)
def test_what_is_no_matter_of_the_data_is_raised(error: Exception) -> None:
    """The error passes unchanged: another place makes its message."""
    with pytest.raises(type(error)) as raised, reading(session(), type(error)):
        raise error
    assert raised.value is error


def test_every_error_of_a_driver_that_has_ended_is_raised() -> None:
    """Such errors don't prove that a file is damaged."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(Py4JError), reading(session(process), Py4JError):
        raise Py4JError("x")


@pytest.mark.parametrize("error", [UNREADABLE, LakeError("t", "r", "m"), OSError(2, "gone"), ValueError("x")])
def test_all_else_is_left_to_the_caller(error: Exception) -> None:
    """An error in a session that can't be asked is left to the caller, too."""
    for asked in (session(), None):
        with reading(asked, type(error)) as attempt:
            raise error
        assert attempt.error is error


def by_spark(error: Exception) -> LakeReader:
    """Return a reader whose tables Spark reads: a session of parts alone, which fails as it reads a table."""
    heap = SimpleNamespace(maxMemory=lambda: 1 << 30)
    jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(Runtime=SimpleNamespace(getRuntime=lambda: heap))))
    failing = session()
    failing.sparkContext.master = "local[1]"
    failing.newSession = lambda: failing
    failing._jvm, failing.read = jvm, SimpleNamespace(format=raising(error))
    return LakeReader(PATHS, SparkOnDemand(lambda: failing), "a test asks for it")


@pytest.mark.parametrize("error", [FULL, NO_MEMORY])
def test_a_full_disk_is_no_damage_of_a_history(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """A full disk is a passing error, both while history's files are read and while they are added up."""
    reader = by_spark(error)
    with pytest.raises(PySparkException) as raised:
        check_history(reader, TABLE, AT)
    assert raised.value is error
    filling = SimpleNamespace(sum=lambda: AT.history_sum, state=raising(error))
    # inside: a disk that fills once history was read, without Spark
    monkeypatch.setattr(histories, "SparkHistory", lambda *_, **__: nullcontext(filling))
    with pytest.raises(PySparkException) as raised:
        prove_history(reader, TABLE, AT, 4, FilledBuckets({}, 4))
    assert raised.value is error


def test_a_file_that_can_not_be_read_is_and_is_named() -> None:
    """The error has Spark's condition, and no values of a row."""
    proof = check_history(by_spark(UNREADABLE), TABLE, AT)
    assert proof.status == "damaged"
    assert proof.reason is not None
    assert "fails with FAILED_READ_FILE.NO_HINT reading /lake/x.parquet" in proof.reason


@dataclass(slots=True, kw_only=True)
class _Side(LakeSide):
    """A table whose rows can't be read."""

    error: Exception

    def buckets(self) -> Buckets:
        raise self.error


@pytest.mark.parametrize(
    ("why", "error", "damage"),
    [
        ("a test asks for it", FULL, UNREADABLE),
        ("a test asks for it", NO_MEMORY, UNREADABLE),
        (None, NoRoomError("t", "r", "m"), UnreadableRowsError("t", "it is damaged", "m")),
        (None, TransientError("t", "r", "m"), UnreadableRowsError("t", "it is damaged", "m")),
        (None, LakeError("t", "it is not permitted (403)", "m"), LogGapError("t", "it is empty", "m")),
    ],
)
def test_a_full_disk_is_no_difference_of_a_table(why: str | None, error: Exception, damage: Exception) -> None:
    """If it counted as a difference, `--repair` would copy every table; by Spark and in this process."""
    proof: Any = SimpleNamespace(current={})
    published: Any = SimpleNamespace(table=TABLE)
    reader = LakeReader(PATHS, SparkOnDemand(session), why)
    with pytest.raises(type(error)) as raised:
        proving._read_lake(proof, published, {}, _Side(reader, TABLE, AT, 4, why, error=error))
    assert raised.value is error
    unreadable = proving._read_lake(proof, published, {}, _Side(reader, TABLE, AT, 4, why, error=damage))
    assert isinstance(unreadable, TableProof)
    assert (unreadable.status, unreadable.by_spark, proof.current) == ("differs", why, {})


@pytest.mark.parametrize(
    ("status", "code", "kind", "text"),
    [
        (400, "ExpiredToken", TransientError, "the credentials have expired"),
        (403, "AccessDenied", StoreRefusesError, "is not permitted (403 AccessDenied)"),
        (403, "RequestTimeTooSkewed", StoreRefusesError, "this machine's clock is off"),
        (301, "PermanentRedirect", StoreRefusesError, "in another region"),
        (404, "NoSuchBucket", StoreRefusesError, "its bucket does not exist"),
        (503, "SlowDown", TransientError, "the store gave 503 SlowDown"),
    ],
)
def test_what_s3_refuses_to_spark_concerns_all_tables(status: int, code: str, kind: type[Exception], text: str) -> None:
    """As S3A writes it; the table that was written then is not at fault, and is not held."""
    answer = f"(Service: S3, Status Code: {status}, Request ID: null)"
    error = PySparkException(f"PUT 0-byte object on t: x.S3Exception: {answer} (SDK Attempt Count: 1):{code}: {answer}")
    refusal = store_refusal("shop", error)
    assert isinstance(refusal, kind)
    assert text in str(refusal)
    assert concerns_all(error)


def test_an_answer_that_was_cut_off_is_no_damage() -> None:
    """The file that was being read is whole: the next run reads it."""
    cause = (
        "x.ConnectionClosedException: Premature end of Content-Length delimited message body (expected: 9; received: 4)"
    )
    error = PySparkException(f"{UNREADABLE} Caused by: {cause}")
    assert isinstance(store_refusal("shop", error), TransientError)
    assert concerns_all(error)


def test_a_missing_file_is_damage() -> None:
    """So is whatever is no answer of a store's."""
    missing = PySparkException("x.S3Exception: (Service: S3, Status Code: 404, Request ID: null):NoSuchKey")
    assert store_refusal("shop", missing) is None
    assert not concerns_all(missing)
    assert store_refusal("shop", UNREADABLE) is None
