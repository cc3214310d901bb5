"""A failure while something is handed over loses nothing on the way and repeats nothing.

From the stream to the buffer, to the worker's queue, into files and the chain, back to the loop, to the server.
"""

from __future__ import annotations

import errno
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lakeproof.config.model import DrainConfig
from lakeproof.drain.flush import EndSegment, Flusher
from lakeproof.drain.transactions.spill import SpillFiles
from lakeproof.drain.transactions.spool import Spool, SpoolMemory
from lakeproof.drain.transactions.units import DecodeUnit, LargeTransaction
from lakeproof.errors import InvariantError, TransientError
from lakeproof.failpoints import watched
from lakeproof.landing.chain import verify_chain
from lakeproof.lsn import Lsn
from lakeproof.names import Xid
from lakeproof.pgoutput.batch import BatchDecoder
from lakeproof.pgoutput.messages import Commit
from lakeproof.pgoutput.relations import RelationCache
from lakeproof.storage import local
from tests.core.drain.pretend_server import PretendDrain, PretendServer, landed, segments
from tests.core.landing.landing_segments import START, WRITER, new_chain
from tests.core.pgoutput.pgoutput_random import resolve

SEED = int(os.environ.get("LAKEPROOF_SEED", "0"))


def _lost() -> TransientError:
    return TransientError("replication stream", "the connection is lost", "connect again")


@pytest.mark.parametrize("streamed", [False, True])
def test_a_unit_that_waits_for_the_worker_is_not_lost_with_the_connection(tmp_path: Path, streamed: bool) -> None:
    """The queue is full, the loop holds a large transaction, later ones are in the buffer, and the socket is dead."""
    server = PretendServer(piece=10_000)
    server.commit(3)
    server.commit(200)
    server.commit(200, streamed=streamed)
    server.commit(2)
    drain = PretendDrain(server, tmp_path / "lake", DrainConfig(queue_bytes=1, spill_bytes=2000))
    at_work, go_on = threading.Event(), threading.Event()

    def hold(name: str) -> None:
        if name == "drain.decoded":
            at_work.set()
            assert go_on.wait(60)

    def cut(where: str) -> None:
        # The worker has something, so that its queue is full and whatever comes next waits.
        if where == "tick" and at_work.is_set() and not go_on.is_set():
            threading.Timer(0.05, go_on.set).start()
            raise _lost()

    server.fault = cut
    chain = drain.open()
    with watched(hold), pytest.raises(TransientError):
        drain.attempt(chain)
    server.fault = lambda _: None
    landed_so_far = landed(drain.open())
    assert landed_so_far == server.rows[: len(landed_so_far)]
    assert landed(drain.run()) == server.rows


@pytest.mark.parametrize("unit", [(1100, 1200), (900, 1100), (1000, 1000), (1000, 900)])
def test_a_unit_that_does_not_go_on_from_the_last_one_is_refused(tmp_path: Path, unit: tuple[int, int]) -> None:
    """That unit is not published, and no later unit either."""
    chain = new_chain(tmp_path / "lake")
    flusher = Flusher(chain, BatchDecoder(RelationCache(resolve)), WRITER)
    try:
        start, end = map(Lsn, unit)
        flusher.submit(DecodeUnit([], 0, start, end, 0), 1.0)
        with pytest.raises(InvariantError, match=f"after {START} came what lies between {start} and {end}"):
            flusher.first(600)
        with pytest.raises(InvariantError):
            flusher.submit(EndSegment(), 1.0)
    finally:
        assert isinstance(flusher.close(), InvariantError)
    assert verify_chain(chain) == 1
    assert chain.end == START


def test_an_end_without_anything_before_it_ends_nothing(tmp_path: Path) -> None:
    """Asked twice, once is enough."""
    chain = new_chain(tmp_path / "lake")
    flusher = Flusher(chain, BatchDecoder(RelationCache(resolve)), WRITER)
    try:
        for work in (EndSegment(), DecodeUnit([], 0, START, Lsn(2000), 0), EndSegment(), EndSegment()):
            flusher.submit(work, 600)
        flusher.wait()
        assert flusher.ending == 1
        flushed = flusher.first()
        assert flushed is not None
        assert flushed.manifest.end_lsn == Lsn(2000)
        assert flusher.first() is flushed
        flusher.collected()
        assert (flusher.first(), flusher.ending, flusher.idle) == (None, 0, True)
    finally:
        assert flusher.close() is None
    assert verify_chain(chain) == 2


def test_a_transaction_that_was_closed_is_not_taken_for_an_empty_one() -> None:
    """The transaction is closed before its first part, or between two."""
    server = PretendServer()
    server.commit(40)
    for parts in (0, 1):
        spool = Spool(SpoolMemory(1 << 20), SpillFiles(1))
        wire = server.stream(START).read(0, 0.0).buffer
        for position in range(len(wire)):
            spool.add(Xid(7), wire[position : position + 1])
        transaction = LargeTransaction(Xid(7), START, Commit(Lsn(1990), Lsn(2000), 5), spool, part_bytes=400)
        reading = transaction.parts()
        for _ in range(parts):
            next(reading)
        transaction.close()
        with pytest.raises(InvariantError, match="after its end"):
            list(reading)


class _Faults:
    """Nothing, a delay or a typical failure each time a place is passed; by a seed, and `left` times at most."""

    def __init__(self, rng: random.Random, left: int) -> None:
        self._rng = rng
        self._left = left
        self.hits: list[str] = []

    def maybe(self, place: str, error: BaseException, share: float = 0.03) -> None:
        if self._left and self._rng.random() < share:
            self._left -= 1
            self.hits.append(place)
            raise error

    def stream(self, where: str) -> None:
        self.maybe(where, _lost())

    def passing(self, name: str) -> None:
        if name in {"drain.received", "drain.after_ack"}:
            self.maybe(name, _lost())
        elif name in {"drain.decoded", "drain.after_manifest"}:
            self._worker(name)

    def _worker(self, name: str) -> None:
        if self._rng.random() < 0.3:
            time.sleep(0.003)
        self.maybe(name, OSError(errno.EIO, os.strerror(errno.EIO)))


@pytest.mark.parametrize("number", [*range(3), *(pytest.param(n, marks=pytest.mark.full) for n in range(3, 100))])
def test_failures_at_every_hand_over_lose_nothing_and_repeat_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Reads, ticks and acknowledgements; the worker's steps; writes, syncs, links before and after they are done; spills."""
    print(f"LAKEPROOF_SEED={SEED} number {number}")  # noqa: T201  (to run a failure again)
    rng = random.Random(f"{SEED}/{number}")
    server = PretendServer()
    server.random(rng, 60)
    limits = DrainConfig(
        flush_interval_s=0.001,
        progress_interval_s=0.001,
        queue_bytes=rng.choice((1, 1000)),
        spill_bytes=rng.choice((1, 1000)),
        spill_files=rng.choice((1, 3)),
        segment_files=1,
    )
    drain = PretendDrain(server, tmp_path / "lake", limits)
    drain.open()
    faults = _Faults(random.Random(f"{SEED}/{number}/faults"), 25)
    server.fault = faults.stream
    _make_unreliable(monkeypatch, faults)
    with watched(faults.passing):
        chain = drain.run()
    monkeypatch.undo()
    assert faults.hits
    assert server.confirmed == chain.end
    assert landed(chain) == server.rows
    # Each link that was made durable was reported once, but those whose making failed after the link stood.
    assert len(drain.counted) == len(set(drain.counted))
    assert set(drain.counted) <= set(segments(chain))


def _make_unreliable(monkeypatch: pytest.MonkeyPatch, faults: _Faults) -> None:
    """Each call fails before or after it has done its work; what it says does not tell which."""

    def unreliable(owner: Any, name: str, code: int) -> None:
        real = getattr(owner, name)

        def call(*given: Any, **named: Any) -> Any:
            faults.maybe(f"before {name}", OSError(code, os.strerror(code)), 0.01)
            done = real(*given, **named)
            faults.maybe(f"after {name}", OSError(code, os.strerror(code)), 0.01)
            return done

        monkeypatch.setattr(owner, name, call)  # inside: the system's calls fail as a disk's do, at each place in turn

    unreliable(os, "link", errno.ESTALE)
    unreliable(os, "fsync", errno.EIO)
    unreliable(os, "pwrite", errno.ENOSPC)
    unreliable(local, "sync", errno.EIO)
    unreliable(local.LocalFile, "write", errno.ENOSPC)
