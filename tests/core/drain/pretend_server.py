"""A server in memory that sends the same transactions to whoever connects, and a drain of it: the real loop and worker.

For failures that a real server does not bring about on demand; those with real servers are in `tests/scenarios`.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq

from lakeproof.config.model import DrainConfig
from lakeproof.drain.acknowledge import acknowledge
from lakeproof.drain.catalog.watch import CatalogWatch
from lakeproof.drain.flush import Flusher
from lakeproof.drain.loop import Goal, Listeners, Session, SessionPace
from lakeproof.drain.progress import LargeProgress
from lakeproof.drain.segment_ends import Flushed
from lakeproof.errors import InvariantError, LakeError, TransientError
from lakeproof.events import Stop, silent
from lakeproof.landing.chain import Chain, NewHead, verify_chain
from lakeproof.landing.incarnation_record import has_head
from lakeproof.landing.segments.reader import file_url, verify_files
from lakeproof.landing.sweep import sweep
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, Oid, Xid
from lakeproof.pgoutput.batch import BatchDecoder
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.pgoutput.messages import (
    Begin,
    Commit,
    Insert,
    LogicalMessage,
    Message,
    Relation,
    RelationColumn,
    StreamCommit,
    StreamStart,
    StreamStop,
)
from lakeproof.pgoutput.relations import RelationCache
from lakeproof.postgres.replication_stream import Received, ReplicationStream
from lakeproof.schema import Identity
from lakeproof.storage.local import LocalStore
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake
from tests.core.landing.landing_segments import HEAD, START
from tests.core.pgoutput.pgoutput_encoder import frames
from tests.core.pgoutput.pgoutput_random import KIND_OIDS, resolve

T = Oid(16384)
TIME = 1_700_000_000_000_000
_COLUMNS = (
    RelationColumn("id", Oid(KIND_OIDS["int4"]), -1, True),
    RelationColumn("note", Oid(KIND_OIDS["text"]), -1, False),
)


@dataclass(frozen=True)
class Transaction:
    """The messages of one, the landed rows it makes (position and id), and its end."""

    end: Lsn
    messages: tuple[Message, ...]
    rows: tuple[tuple[int, int], ...]


@dataclass
class PretendServer:
    """Its transactions, the position acknowledged to it, and a hook that each call of a stream runs first (`fault`)."""

    transactions: list[Transaction] = field(default_factory=list)
    confirmed: Lsn = START
    fault: Callable[[str], None] = lambda _: None
    piece: int = 25  # messages in one read
    _ids: int = 0

    @property
    def end(self) -> Lsn:
        """The end of the last transaction."""
        return self.transactions[-1].end if self.transactions else START

    @property
    def rows(self) -> list[tuple[int, int]]:
        """The rows that have to be landed in the end, in this order."""
        return [row for transaction in self.transactions for row in transaction.rows]

    def commit(self, count: int, *, streamed: bool = False, note: int = 10) -> Transaction:
        """Add a transaction of `count` inserts."""
        commit_lsn = Lsn(self.end.value + 100)
        end, xid = Lsn(commit_lsn.value + 8), Xid(700 + len(self.transactions))
        ids = range(self._ids, self._ids + count)
        self._ids += count
        inside = [_insert(number, note, xid if streamed else None) for number in ids]
        messages: list[Message]
        if streamed:
            half = len(inside) // 2
            messages = [StreamStart(xid, True), _relation(xid), *inside[:half], StreamStop()]
            messages += [StreamStart(xid, False), *inside[half:], StreamStop()]
            messages += [StreamCommit(xid, commit_lsn, end, TIME + end.value)]
        else:
            messages = [Begin(commit_lsn, TIME + end.value, xid), _relation(None), *inside]
            messages += [Commit(commit_lsn, end, TIME + end.value)]
        result = Transaction(end, tuple(messages), tuple((end.value, number) for number in ids))
        self.transactions.append(result)
        return result

    def note(self) -> None:
        """A logical message of no transaction."""
        position = Lsn(self.end.value + 50)
        self.transactions.append(Transaction(position, (LogicalMessage(False, position, "note", b"n"),), ()))

    def random(self, rng: random.Random, count: int) -> None:
        """Small and large ones, streamed ones, messages."""
        for _ in range(count):
            kind = rng.random()
            if kind < 0.1:
                self.note()
            else:
                size = rng.choice((0, 1, 3, 3, 20)) if kind < 0.8 else 60
                self.commit(size, streamed=kind > 0.9, note=rng.choice((1, 30)))

    def stream(self, start: Lsn) -> PretendStream:
        """A connection: every transaction that ends after `start`."""
        assert start >= self.confirmed
        sent = [frame for t in self.transactions if t.end > start for frame in frames(*t.messages)]
        return PretendStream(self, sent)


@dataclass
class PretendStream:
    """The part of a stream that `Session` needs."""

    server: PretendServer
    waiting: list[bytes]

    def read(self, max_bytes: int, timeout_s: float) -> Received:
        """Return some messages, with a keepalive after the last of them."""
        del max_bytes, timeout_s
        self.server.fault("read")
        received = Received(MessageBuffer.of(self.waiting[: self.server.piece]))
        self.waiting = self.waiting[self.server.piece :]
        if not self.waiting:
            received.keepalive_lsn = Lsn(self.server.end.value + 20)
        return received

    def acknowledge(self, lsn: Lsn) -> None:
        """The server forgets what ends before it."""
        self.server.fault("acknowledge")
        assert lsn >= self.server.confirmed
        self.server.confirmed = lsn

    def note(self, *, received: Lsn, applied: Lsn | None) -> None:
        """The server hears what has come, which is never less than what is durable."""
        assert received >= self.server.confirmed
        assert applied is None

    def tick(self) -> None:
        """Advance the clock."""
        self.server.fault("tick")


@dataclass
class PretendDrain:
    """A drain of a server into a lake: `attempt` is one connection, `run` goes on until everything is there."""

    server: PretendServer
    lake: Path
    limits: DrainConfig = field(default_factory=lambda: DrainConfig(flush_interval_s=0.001, progress_interval_s=0.001))
    make_watch: Callable[[Chain, str], Any] = lambda _chain, _writer: None
    on_flushed: Callable[[Flushed], None] = lambda _: None
    counted: list[int] = field(default_factory=list)
    # Several units in a few transactions, and thousands of waits that a test can afford.
    pace: SessionPace = field(default_factory=lambda: SessionPace(unit_bytes=400, wait_s=0.002, busy_wait_s=0.001))

    def open(self) -> Chain:
        """The landing as it stands, through its own store."""
        lake = SourceLake(LocalStore(self.lake), LakePaths("shop"))
        if has_head(lake, Incarnation(1)):
            return Chain.open(lake, Incarnation(1))
        return Chain.create(lake, Incarnation(1), NewHead(START, HEAD, secrets.token_hex(16)))

    def attempt(self, chain: Chain, target: Lsn | None = None) -> None:
        """Run one connection, until `target` (the end of what the server has)."""
        writer = secrets.token_hex(16)
        stream = cast(ReplicationStream, self.server.stream(chain.end))
        acknowledge(stream, chain.newest)
        watch: CatalogWatch | None = self.make_watch(chain, writer)
        flusher = Flusher(chain, BatchDecoder(RelationCache(resolve)), writer, watch, self.limits)
        failure: BaseException | None = None
        try:
            session = Session(
                stream,
                flusher,
                self.limits,
                chain.end,
                Listeners(self._flushed, on_spilled=lambda _: None, large=LargeProgress(silent, "shop")),
                pace=self.pace,
            )
            session.run(Goal(Stop(), target or self.server.end))
        finally:
            failure = flusher.close()
            self.counted += [flushed.manifest.number for flushed in flusher.uncollected]
            if isinstance(failure, InvariantError):
                raise failure

    def run(self, attempts_max: int = 200) -> Chain:
        """Connect again whenever something has failed; gives the chain."""
        for _ in range(attempts_max):
            with suppress(TransientError, LakeError, OSError):
                chain = self.open()
                sweep(chain)
                self.attempt(chain)
                return chain
        raise AssertionError("it has not come to its end")

    def _flushed(self, flushed: Flushed) -> None:
        self.counted.append(flushed.manifest.number)
        self.on_flushed(flushed)


def landed(chain: Chain) -> list[tuple[int, int]]:
    """Position and id of every row in stream order; the chain, the files and the places are checked on the way."""
    verify_chain(chain)
    actual = []
    for manifest in chain.manifests():
        verify_files(chain, manifest)
        rows: list[tuple[int, int, int]] = []
        for file in manifest.files:
            columns = pq.read_table(file_url(chain, file), columns=["_lp_ord", "_lp_lsn", "id"]).to_pydict()
            rows += zip(*columns.values(), strict=True)
        rows.sort()
        assert [row - manifest.first_ordinal for row, _, _ in rows] == list(range(manifest.rows))
        assert all(manifest.start_lsn.value < lsn <= manifest.end_lsn.value for _, lsn, _ in rows)
        actual += [(lsn, number) for _, lsn, number in rows]
    return actual


def segments(chain: Chain) -> Iterator[int]:
    """The numbers of the links that a drain's worker reports."""
    return (manifest.number for manifest in chain.manifests() if manifest.kind.value in ("segment", "progress"))


def _relation(xid: Xid | None) -> Relation:
    return Relation(T, "shop", "orders", Identity.DEFAULT, _COLUMNS, xid)


def _insert(number: int, note: int, xid: Xid | None) -> Insert:
    return Insert(T, (str(number), "n" * note), xid)
