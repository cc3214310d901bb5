"""An object store that does what it was asked and loses the answer, refuses for the moment, or is cut off in the middle.

A real server, and a proxy before it. What the probe refuses is in `test_object_store_probe.py`.
"""

from __future__ import annotations

import http
import random
import time
from collections.abc import Callable

import pytest

from lakeproof.errors import LakeError, StoreRefusesError, TransientError
from lakeproof.storage.object.files import PART_BYTES, ObjectFile, UploadMemory
from lakeproof.storage.object.store import ObjectStore
from lakeproof.storage.store import AlreadyExistsError, NewFile, NotFoundError
from tests.support.ingest.fix_drain import wait_until
from tests.support.stores.fix_object_store import S3Server, object_store
from tests.support.stores.object_proxy import Fault, Proxied, of_kind, putting

# For so long a request is repeated. A busy machine takes longer for each of them, so they are counted: attempts come after
# 0.05 s at least, 0.1, 0.2, and a conditional put that has failed looks what is there.
FEW_S, REQUESTS_MAX = 0.5, 8


@pytest.fixture
def through(bucket: str, proxied: Proxied) -> ObjectStore:
    """A store behind the proxy that was probed already, so that faults hit what the test does."""
    store = object_store(bucket, proxied.endpoint, retry_s=30)
    store.put("first", b"x")
    return store


FAULTS: dict[str, Callable[[], list[Fault]]] = {
    "answer lost": lambda: [Fault(putting("n/1"), lose=True)],
    "answer lost, and again": lambda: [Fault(putting("n/1"), times=2, lose=True)],
    "cut in half": lambda: [Fault(putting("n/1"), halve=True)],
    "409": lambda: [Fault(putting("n/1"), status=409, code="ConditionalRequestConflict")],
    "409 several times": lambda: [Fault(putting("n/1"), times=3, status=409, code="ConditionalRequestConflict")],
    "503": lambda: [Fault(putting("n/1"), times=2, status=503, code="SlowDown")],
    "500": lambda: [Fault(putting("n/1"), status=500, code="InternalError")],
    "429": lambda: [Fault(putting("n/1"), status=429)],
    "lost, then refused": lambda: [Fault(putting("n/1"), lose=True), Fault(putting("n/1"), status=503)],
    "lost, and reading refused": lambda: [Fault(putting("n/1"), lose=True), Fault(of_kind("GET"), times=2, status=503)],
    "refused although it was free": lambda: [Fault(putting("n/1"), status=412, code="PreconditionFailed")],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_put_if_absent_is_done_once_whatever_the_store_reports(
    through: ObjectStore, proxied: Proxied, fault: str
) -> None:
    """Our bytes are success, other bytes are not, and nothing is another attempt."""
    proxied.faults += FAULTS[fault]()
    through.put_if_absent("n/1", b"mine")
    assert through.get("n/1") == b"mine"
    proxied.faults += FAULTS[fault]()
    with pytest.raises(AlreadyExistsError, match="n/1"):
        through.put_if_absent("n/1", b"theirs")
    assert through.get("n/1") == b"mine"
    # Only a condition can be refused.
    proxied.faults = [f for f in FAULTS[fault]() if f.status != http.HTTPStatus.PRECONDITION_FAILED]
    through.put("n/1", b"newer")
    assert through.get("n/1") == b"newer"


def test_a_store_that_stays_away_is_an_error_that_says_try_again(bucket: str, proxied: Proxied) -> None:
    """Nothing waits for longer than the configuration says."""
    through = object_store(bucket, proxied.endpoint, retry_s=FEW_S)
    through.put("first", b"x")
    proxied.faults.append(Fault(lambda _: True, times=10_000, status=503, code="SlowDown"))
    for call in (
        lambda: through.put_if_absent("n/1", b"mine"),
        lambda: through.put("n/1", b"mine"),
        lambda: through.get("n/1"),
        lambda: through.list("n"),
        lambda: through.exists("n/1"),
        lambda: through.delete("n/1"),
    ):
        begun, before = time.monotonic(), len(proxied.seen)
        with pytest.raises(TransientError, match="503") as raised:
            call()
        assert 0 < len(proxied.seen) - before <= REQUESTS_MAX
        assert time.monotonic() - begun < 30
        assert raised.value.remedy
    assert through.is_locked("a.lock") is None
    assert through.lock_holder("a.lock") is None


def test_a_slow_answer_is_waited_for(through: ObjectStore, proxied: Proxied) -> None:
    """A request has its own limit."""
    proxied.faults.append(Fault(putting("n/1"), delay_s=1.0))
    through.put_if_absent("n/1", b"mine")
    assert through.get("n/1") == b"mine"


def test_an_answer_that_comes_too_late_is_none(bucket: str, proxied: Proxied) -> None:
    """The put is done while nobody waits for it any more; the condition keeps it from being done twice."""
    store = object_store(bucket, proxied.endpoint, retry_s=10, timeout_s=1)
    store.put("first", b"x")
    proxied.faults.append(Fault(putting("n/1"), delay_s=1.5))
    store.put_if_absent("n/1", b"mine")
    time.sleep(1)
    assert store.get("n/1") == b"mine"


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (403, "AccessDenied", "it( up)? is not permitted"),
        (403, "InvalidAccessKeyId", "does not know these credentials"),
        (403, "SignatureDoesNotMatch", "does not know these credentials"),
        (403, "RequestTimeTooSkewed", "clock is off"),
        (400, "AuthorizationHeaderMalformed", "another region"),
        (301, "PermanentRedirect", "another region"),
        (404, "NoSuchBucket", "its bucket does not exist"),
        (400, "ExpiredToken", "the credentials have expired"),
    ],
)
def test_what_a_person_must_mend_is_reported_at_once(
    through: ObjectStore, proxied: Proxied, status: int, code: str, text: str
) -> None:
    """No time is spent on asking again; nothing is written."""
    proxied.faults.append(Fault(putting("n/1"), status=status, code=code))
    before = len(proxied.seen)
    with pytest.raises(TransientError if code == "ExpiredToken" else StoreRefusesError, match=text):
        through.put_if_absent("n/1", b"mine")
    assert len(proxied.seen) - before == 1
    proxied.faults.append(Fault(lambda request: "n/1" in request.path, times=2, status=status, code=code))
    if status != http.HTTPStatus.NOT_FOUND:
        with pytest.raises((TransientError, LakeError, StoreRefusesError), match=text):
            through.exists("n/1")
    proxied.faults.clear()
    assert not through.exists("n/1")


def test_a_bucket_that_does_not_exist_is_reported_by_every_request(s3_server: S3Server, credentials: None) -> None:
    """An answer without a body does not distinguish a missing bucket from a missing key, so a second question does."""
    del credentials
    calls: list[Callable[[ObjectStore], object]] = [
        lambda s: s.exists("a"),
        lambda s: s.get("a"),
        lambda s: s.list(""),
        lambda s: s.folders(""),
        lambda s: s.put("a", b""),
        lambda s: s.put_if_absent("a", b""),
        lambda s: s.create("a"),
        lambda s: s.open("a"),
    ]
    for call in calls:
        with pytest.raises(StoreRefusesError, match="bucket does not exist"):
            call(object_store("no-such-bucket", s3_server.endpoint))


def test_an_answer_that_is_cut_is_read_again(through: ObjectStore, proxied: Proxied) -> None:
    """Half of a document is never taken for the whole."""
    through.put("n/1", bytes(range(256)) * 4000)
    for kind in ("get", "open", "list"):
        proxied.faults.append(Fault(of_kind("GET", "GET?prefix"), shorten=True))
        if kind == "list":
            assert through.list("n") == ["n/1"]
        else:
            with through.open("n/1") as opened:
                assert (opened.read() if kind == "open" else through.get("n/1")) == bytes(range(256)) * 4000


LARGE: dict[str, Fault] = {
    "a part refused": Fault(of_kind("PUT?uploadId"), times=3, status=503, code="SlowDown"),
    "a part cut in half": Fault(of_kind("PUT?uploadId"), times=2, halve=True),
    "a part's answer lost": Fault(of_kind("PUT?uploadId"), times=2, lose=True),
    "the beginning's answer lost": Fault(of_kind("POST?uploads"), lose=True),
    "the end refused": Fault(of_kind("POST?uploadId"), status=503, code="SlowDown"),
    "the end's answer lost": Fault(of_kind("POST?uploadId"), lose=True),
}


@pytest.mark.parametrize("fault", LARGE)
def test_a_large_file_is_whole_or_fails(bucket: str, proxied: Proxied, fault: str) -> None:
    """The parts are repeated by the client; if its patience ends, the writer begins again with another name."""
    store = object_store(bucket, proxied.endpoint, retry_s=10)
    data = random.Random(5).randbytes(2 * PART_BYTES + 5)
    chosen = LARGE[fault]
    proxied.faults.append(Fault(chosen.matches, chosen.times, chosen.status, chosen.code, chosen.lose, chosen.halve))
    for attempt in range(3):
        file = store.create(f"d/{attempt}")
        try:
            file.write(data)
            file.finish()
        except TransientError:
            file.abandon()
            assert not store.exists(f"d/{attempt}")
        else:
            break
    assert store.get(f"d/{attempt}") == data
    assert attempt == 0 or "lost" in fault


def test_a_large_file_that_can_not_be_sent_says_so_once(bucket: str, proxied: Proxied) -> None:
    """A writer of Parquet writes its footer even after an error: that is swallowed, and the end repeats the error."""
    through = object_store(bucket, proxied.endpoint, retry_s=FEW_S)
    through.put("first", b"x")
    proxied.faults.append(Fault(of_kind("PUT?uploadId"), times=10_000, status=503, code="SlowDown"))
    file = through.create("d/f")
    with pytest.raises(TransientError, match="503"):
        _write(file, b"x" * (20 * PART_BYTES))
    file.write(b"footer")
    with pytest.raises(TransientError, match="503"):
        file.finish()
    file.abandon()
    assert not through.exists("d/f")


def test_an_upload_that_is_abandoned_is_aborted(s3_server: S3Server, s3_store: ObjectStore) -> None:
    """Unfinished parts cost money, and no listing shows them."""
    file = s3_store.create("d/f")
    file.write(b"x" * (4 * PART_BYTES))
    uploads = f"/{s3_store.place.bucket}?uploads"
    assert b"<UploadId>" in s3_server.request("GET", uploads)[1]
    file.abandon()
    wait_until(lambda: b"<UploadId>" not in s3_server.request("GET", uploads)[1])


@pytest.mark.parametrize("size", [10, PART_BYTES + 1, 2 * PART_BYTES])
@pytest.mark.parametrize("parts", [0, 1, 2])
def test_files_without_room_in_memory_wait_on_disk(s3_store: ObjectStore, size: int, parts: int) -> None:
    """A segment of many tables keeps no part of each of them in memory."""
    memory = UploadMemory(parts)
    data = random.Random(size).randbytes(size)
    files = [ObjectFile(s3_store, f"d/{n}", memory) for n in range(3)]
    for start in range(0, size, 1 << 20):
        for file in files:
            file.write(data[start : start + (1 << 20)])
    for file in files:
        file.finish()
    assert [s3_store.get(f"d/{n}") == data for n in range(3)] == [True] * 3
    assert memory.take(parts)
    assert not memory.take(1)
    memory.give(parts)
    again = ObjectFile(s3_store, "d/0", memory)
    with pytest.raises(AlreadyExistsError):
        _write(again, b"other" + data)
    again.abandon()
    assert s3_store.get("d/0") == data


def test_requests_are_counted(through: ObjectStore, proxied: Proxied) -> None:
    """The counter agrees with what the server has got."""
    proxied.seen.clear()
    through.requests.counts.clear()
    proxied.faults.append(Fault(putting("n/1"), status=503, code="SlowDown"))
    through.put_if_absent("n/1", b"mine")
    through.put("n/2", b"x")
    through.get("n/2")
    through.exists("n/3")
    through.list("n")
    through.delete("n/2")
    with pytest.raises(NotFoundError):
        through.get("n/2")
    for size in (10, 2 * PART_BYTES + 1):
        file = through.create(f"d/{size}")
        file.write(b"x" * size)
        file.finish()
        with through.open(f"d/{size}") as opened:
            while opened.read(1 << 20):
                pass
    assert sum(through.requests.counts.values()) == len(proxied.seen), (through.requests.counts, proxied.kinds())
    assert through.requests.counts["part"] == proxied.kinds().count("PUT?uploadId") == 3


def _write(file: NewFile, data: bytes) -> None:
    for start in range(0, len(data), PART_BYTES):
        file.write(data[start : start + PART_BYTES])
    file.finish()
