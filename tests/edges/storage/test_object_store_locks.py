"""Locks on an object store, between real processes: who lives keeps others out, who is killed is followed.

What every store's lock does is in `test_store.py`.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from lakeproof.errors import TransientError
from lakeproof.storage.object.lock import LOCK_TIMES, LockTimes
from lakeproof.storage.object.store import ObjectStore
from lakeproof.storage.store import LockHandle
from tests.support.ingest.fix_drain import wait_until
from tests.support.stores.fix_object_store import S3Server, object_store
from tests.support.stores.object_proxy import Fault, object_proxy, putting

KEY = "shop/cycles/lease.lock"
ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def process(store: ObjectStore, how: str = "alone", key: str = KEY) -> Iterator[subprocess.Popen[str]]:
    """A process that takes the lock; it is killed at the end of the block."""
    endpoint = str(store.location.storage.endpoint)
    running = subprocess.Popen(
        [sys.executable, "-m", "tests.support.stores.object_lock_process", store.place.bucket, endpoint, key, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def _line(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


# The store's clock has whole seconds, and a busy machine may be late with a renewal.
QUICK = LockTimes(ttl_s=5.0, renew_s=0.5)


@pytest.fixture
def quick_store(s3_server: S3Server, bucket: str) -> ObjectStore:
    """A store in a new bucket whose locks expire after 5 s."""
    return object_store(bucket, s3_server.endpoint, lock_times=QUICK)


def _check_for_a_minute(held: LockHandle) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        held.check()
        time.sleep(0.1)


def _until_free(store: ObjectStore, key: str = KEY) -> None:
    """Wait until nobody holds the lock."""
    deadline = time.monotonic() + 60
    while store.is_locked(key):
        assert time.monotonic() < deadline, "it was not freed"
        time.sleep(0.2)


def test_a_living_holder_keeps_a_newcomer_out_and_is_followed_at_once_when_it_ends(s3_store: ObjectStore) -> None:
    """Two processes on one store; the refusal comes at once, and names its remedy."""
    with process(s3_store) as holder:
        assert _line(holder) == "held"
        assert s3_store.is_locked(KEY) is True
        assert str(s3_store.lock_holder(KEY)).startswith(f"process {holder.pid} on ")
        begun = time.monotonic()
        with pytest.raises(TransientError, match="it is taken") as raised, s3_store.lock(KEY, "thing", "it is taken"):
            pass
        assert time.monotonic() - begun < LOCK_TIMES.ttl_s / 2
        assert "30 s" in raised.value.remedy
        with process(s3_store) as newcomer:
            assert _line(newcomer).startswith(f"refused: it is taken: process {holder.pid} on ")
        assert s3_store.share_lock(KEY, 0.0) is None
        assert holder.stdin is not None
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert _line(holder) == "released"
        with s3_store.lock(KEY, "thing", "it is taken") as held:
            held.check()


@pytest.mark.slow
@pytest.mark.full
def test_a_holder_that_was_killed_is_followed_within_half_a_minute(s3_store: ObjectStore) -> None:
    """Not before its last renewal is old enough, and by one of those who wait."""
    with process(s3_store) as holder:
        assert _line(holder) == "held"
        holder.kill()
        holder.wait()
        killed = time.monotonic()
        with pytest.raises(TransientError), s3_store.lock(KEY, "thing", "it is taken"):
            pass
        while True:
            try:
                with s3_store.lock(KEY, "thing", "it is taken"):
                    waited = time.monotonic() - killed
                break
            except TransientError:
                time.sleep(0.5)
        assert LOCK_TIMES.ttl_s - LOCK_TIMES.renew_s - 2 < waited < LOCK_TIMES.ttl_s + 3


def test_of_several_that_follow_a_dead_holder_one_does(quick_store: ObjectStore) -> None:
    """Their swaps name the same version."""
    with process(quick_store) as holder:
        assert _line(holder) == "held"
    _until_free(quick_store)
    together, tried = threading.Barrier(6), threading.Barrier(6)

    def follow(_: int) -> bool:
        together.wait()
        try:
            with quick_store.lock(KEY, "thing", "it is taken"):
                tried.wait(60)
                return True
        except TransientError:
            # The one that has it keeps it until all have tried.
            tried.wait(60)
            return False

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(follow, range(6))) == 1


def test_a_lock_is_held_for_longer_than_it_lasts(quick_store: ObjectStore) -> None:
    """A thread of the holder's renews it."""
    with quick_store.lock(KEY, "thing", "it is taken") as held:
        for _ in range(14):
            time.sleep(QUICK.renew_s)
            assert quick_store.is_locked(KEY) is True
            held.check()
    assert quick_store.is_locked(KEY) is False


def test_a_holder_that_is_cut_off_knows_it_and_the_next_one_goes_on(s3_server: S3Server, bucket: str) -> None:
    """The lock can't be renewed: after its time the holder's check fails, and another one takes it."""
    other = object_store(bucket, s3_server.endpoint, lock_times=QUICK)
    with object_proxy(s3_server.port) as proxied, ExitStack() as stack:
        cut_off = object_store(bucket, proxied.endpoint, retry_s=0.5, lock_times=QUICK)
        held = stack.enter_context(cut_off.lock(KEY, "thing", "it is taken"))
        held.check()
        proxied.faults.append(Fault(putting("lease.lock"), times=100_000, status=503))
        with pytest.raises(TransientError), other.lock(KEY, "thing", "it is taken"):
            pass
        _until_free(other)
        # The store's clock may be a second ahead of the holder's.
        with pytest.raises(TransientError, match="not renewed in time"):
            _check_for_a_minute(held)
        with other.lock(KEY, "thing", "it is taken") as next_one:
            proxied.faults.clear()
            time.sleep(2)
            with pytest.raises(TransientError, match="not renewed in time"):
                held.check()
            next_one.check()
            # The one that was cut off ends: it must not give back what is another's by now.
            stack.close()
            next_one.check()
            assert other.is_locked(KEY) is True


def test_a_renewal_whose_answer_is_lost_is_one(s3_server: S3Server, bucket: str) -> None:
    """The document under the key decides."""
    with object_proxy(s3_server.port) as proxied:
        store = object_store(bucket, proxied.endpoint, lock_times=QUICK)
        with store.lock(KEY, "thing", "it is taken") as held:
            proxied.faults.append(Fault(putting("lease.lock"), times=8, lose=True))
            time.sleep(QUICK.ttl_s + 1)
            wait_until(lambda: proxied.faults[0].times < 4)
            held.check()
            assert store.is_locked(KEY) is True
        assert store.is_locked(KEY) is False


def test_shared_holders_are_seen_until_the_last_one_is_dead(quick_store: ObjectStore) -> None:
    """Two processes of one job: one killed, one alive; then none."""
    key = ".runs/job.lock"
    assert not quick_store.exists(key)
    own = quick_store.share_lock(key, 0.0)
    with process(quick_store, "shared", key) as other:
        assert _line(other) == "held"
    assert own is not None
    assert quick_store.exists(key)
    deadline = time.monotonic() + 60
    while len(quick_store.written(".runs/.job.lock.shared")) == 2:
        assert time.monotonic() < deadline, "the dead one is still one of them"
        assert quick_store.is_locked(key) is True
        time.sleep(0.2)
    assert quick_store.is_locked(key) is True
    with pytest.raises(TransientError), quick_store.lock(key, "thing", "it is shared"):
        pass
    assert quick_store.list(".runs") == [key]
    own.release()
    own.release()
    assert quick_store.is_locked(key) is False
    with quick_store.lock(key, "thing", "it is shared"):
        assert quick_store.share_lock(key, 0.5) is None
