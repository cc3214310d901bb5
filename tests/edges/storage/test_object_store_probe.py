"""An object store is tried before the first write to a lake: what it does not permit or keep is reported first.

The stores that break a condition are a real server behind a proxy that drops it, or checks it first and writes then.
"""

from __future__ import annotations

import pytest

from lakeproof.errors import LakeError, StoreRefusesError, TransientError
from lakeproof.storage.object.probe import RECORD, WRITERS
from lakeproof.storage.object.store import ObjectStore
from tests.support.stores.fix_object_store import S3Server, object_store
from tests.support.stores.object_proxy import Fault, Proxied, Request, of_kind

ALWAYS = 1_000_000


def _conditional(request: Request) -> bool:
    return request.kind == "PUT" and request.conditional


def test_a_lake_is_tried_once(bucket: str, proxied: Proxied) -> None:
    """The first write costs a hundred requests; another process looks at the record, and nothing else is left."""
    first = object_store(bucket, proxied.endpoint)
    first.put("a/1", b"x")
    assert 60 < len(proxied.seen) < 200
    assert sorted(first.written("")) == [RECORD, "a/1"]
    proxied.seen.clear()
    second = object_store(bucket, proxied.endpoint)
    second.put("a/2", b"x")
    second.put_if_absent("a/3", b"x")
    assert proxied.kinds() == ["GET", "PUT", "PUT"]
    proxied.seen.clear()
    object_store(bucket, proxied.endpoint).get("a/1")
    assert proxied.kinds() == ["GET"], "a reader tries nothing"


def test_a_lake_that_was_copied_elsewhere_is_tried_again(s3_server: S3Server, bucket: str, proxied: Proxied) -> None:
    """The record says for which place it is true."""
    first = object_store(bucket, proxied.endpoint)
    first.put("a/1", b"x")
    other = s3_server.create_bucket()
    raw = object_store(other, proxied.endpoint)
    raw.put_raw(RECORD, first.get(RECORD))
    proxied.seen.clear()
    raw.put("a/1", b"x")
    assert len(proxied.seen) > 60


def test_a_store_that_ignores_the_condition_is_refused(bucket: str, proxied: Proxied) -> None:
    """It accepts the header and overwrites."""
    proxied.faults.append(Fault(_conditional, ALWAYS, strip=True))
    with pytest.raises(LakeError, match="ignores the condition"):
        object_store(bucket, proxied.endpoint).put_if_absent("a", b"x")
    proxied.faults.clear()
    assert list(object_store(bucket, proxied.endpoint).written("")) == []


def test_a_store_that_ignores_the_condition_of_a_swap_is_refused(bucket: str, proxied: Proxied) -> None:
    """It knows `If-None-Match` alone."""
    swaps = 0

    def swap(request: Request) -> bool:
        nonlocal swaps
        # The creates of the first check come first.
        swaps += _conditional(request)
        return swaps > 2 and _conditional(request)

    proxied.faults.append(Fault(swap, ALWAYS, strip=True))
    with pytest.raises(LakeError, match="ignores the condition"):
        object_store(bucket, proxied.endpoint).put_if_absent("a", b"x")


def test_a_store_that_checks_first_and_writes_then_is_refused(bucket: str, proxied: Proxied) -> None:
    """One writer after the other it keeps the condition; of several at the same moment more than one wins."""

    def racing(request: Request) -> bool:
        return _conditional(request) and "/.create-" in request.path

    proxied.faults.append(Fault(racing, ALWAYS, check_first=True))
    with pytest.raises(LakeError, match=rf"[2-{WRITERS}] of {WRITERS} writers of one key at the same moment"):
        object_store(bucket, proxied.endpoint).put_if_absent("a", b"x")


@pytest.mark.parametrize(
    ("kind", "action"),
    [("GET?prefix", "listing"), ("GET", "reading"), ("PUT", "writing"), ("DELETE", "deleting")],
)
def test_a_missing_permission_is_named_before_anything_is_written(
    bucket: str, proxied: Proxied, kind: str, action: str
) -> None:
    """Listing, putting, getting and deleting are distinguished, and the lake's first document is not there."""
    proxied.faults.append(Fault(of_kind(kind), ALWAYS, status=403, code="AccessDenied"))
    with pytest.raises(StoreRefusesError, match=f"{action} it is not permitted .*AccessDenied") as raised:
        object_store(bucket, proxied.endpoint).put_if_absent("a", b"x")
    assert "list, get, put and delete" in raised.value.remedy
    proxied.faults.clear()
    assert not object_store(bucket, proxied.endpoint).exists("a")


@pytest.mark.parametrize("fault", ["busy", "lost"])
def test_a_busy_store_is_not_refused(bucket: str, proxied: Proxied, fault: str) -> None:
    """An answer that is lost, and a 409 to two writers at once, say nothing about the condition."""
    racing = 0

    def some(request: Request) -> bool:
        nonlocal racing
        racing += "/.create-" in request.path or "/.swap-" in request.path
        return _conditional(request) and "/.create-" in request.path and racing % 3 == 0

    status = None if fault == "lost" else 409
    proxied.faults.append(Fault(some, ALWAYS, status=status, code="ConditionalRequestConflict", lose=fault == "lost"))
    store = object_store(bucket, proxied.endpoint)
    store.put_if_absent("a", b"x")
    assert store.get("a") == b"x"


def test_expired_credentials_are_waited_out_by_whoever_waits(bucket: str, proxied: Proxied) -> None:
    """They are an error that says try again, and the trial begins anew."""
    store = object_store(bucket, proxied.endpoint)
    proxied.faults.append(Fault(_conditional, 1, status=400, code="ExpiredToken"))
    with pytest.raises(TransientError, match="credentials have expired"):
        store.put("a", b"x")
    store.put("a", b"x")
    assert store.get("a") == b"x"


def test_nothing_is_sent_before_a_store_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A code location opens stores to show their URLs."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    store: ObjectStore = object_store("bucket", "http://127.0.0.1:1")
    assert store.url("a") == "s3a://bucket/data/lake/a"
    assert sum(store.requests.counts.values()) == 0
