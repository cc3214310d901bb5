"""Transactions streamed while they are open: what is committed comes out whole, in commit order, and nothing else does."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field

import pytest

from lakeproof.drain.transactions.buffer import TransactionBuffer
from lakeproof.drain.transactions.spill import Spill, SpillFiles, SpillLimitError
from lakeproof.drain.transactions.units import DecodeUnit, LargeTransaction
from lakeproof.errors import SourceError
from lakeproof.lsn import Lsn
from lakeproof.names import Oid, Xid
from lakeproof.pgoutput.decoder import decode
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.pgoutput.messages import (
    Begin,
    Commit,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    TwoPhase,
)
from tests.core.pgoutput.pgoutput_encoder import frames

SEED = int(os.environ.get("LAKEPROOF_SEED", "0"))
TIME = 1_700_000_000_000_000
T = Oid(16384)


@dataclass
class _Open:
    """A streamed transaction of the simulated server: its (sub)transactions in the order of their first message."""

    xid: int
    kept: list[tuple[int, Message]] = field(default_factory=list)
    nested: list[int] = field(default_factory=list)
    begun: bool = False


class _Server:
    """A stream of ordinary and streamed transactions from a seed, and what is committed in it, in commit order."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sent: list[Message] = []
        self.committed: list[tuple[Lsn, int, list[Message]]] = []
        self._open: list[_Open] = []
        self._xid = 100
        self._lsn = 1000
        self._value = 0

    def step(self) -> None:
        """Do a random thing that a server may do."""
        rng = self.rng
        if len(self._open) < 5 and rng.random() < 0.2:
            self._open.append(_Open(self._next_xid()))
        elif self._open and rng.random() < 0.5:
            self._chunk(rng.choice(self._open))
        elif self._open and rng.random() < 0.3:
            self.end(rng.choice(self._open))
        else:
            self._ordinary()

    def finish(self) -> None:
        """End every open transaction but the last."""
        for transaction in self._open[:-1]:
            self.end(transaction)

    def end(self, transaction: _Open) -> None:
        """Commit or abort."""
        self._open.remove(transaction)
        if not transaction.begun:
            return
        if self.rng.random() < 0.3:
            self.sent.append(StreamAbort(Xid(transaction.xid), Xid(transaction.xid), None, None))
            return
        lsn = self._next_lsn()
        self.sent.append(StreamCommit(Xid(transaction.xid), lsn, Lsn(lsn.value + 8), TIME))
        self.committed.append((Lsn(lsn.value + 8), transaction.xid, [m for _, m in transaction.kept]))

    def _chunk(self, transaction: _Open) -> None:
        rng, top = self.rng, transaction.xid
        self.sent.append(StreamStart(Xid(top), not transaction.begun))
        if not transaction.begun and rng.random() < 0.3:
            origin = Origin(Lsn(0), "elsewhere")
            self.sent.append(origin)
            transaction.kept.append((top, origin))
        transaction.begun = True
        for _ in range(rng.choice([0, 1, 3, 40])):
            if rng.random() < 0.2:
                transaction.nested.append(self._next_xid())
            elif transaction.nested and rng.random() < 0.1:
                # Released: it goes on under its parent, as a part of which it may still be rolled back.
                transaction.nested.append(top) if rng.random() < 0.3 else None
            owner = transaction.nested[-1] if transaction.nested else top
            message, sent = self._change(owner)
            self.sent.append(sent)
            transaction.kept.append((owner, message))
        self.sent.append(StreamStop())
        if transaction.nested and rng.random() < 0.5:
            self._roll_back(transaction)

    def _roll_back(self, transaction: _Open) -> None:
        """Roll back to a savepoint: every subtransaction since then gets its own message, the inner ones first."""
        owners = [owner for owner, _ in transaction.kept]
        victims = [x for x in transaction.nested[self.rng.randrange(len(transaction.nested)) :] if x != transaction.xid]
        for victim in victims:
            if victim in owners:
                self.sent.append(StreamAbort(Xid(transaction.xid), Xid(victim), None, None))
        transaction.kept = [(owner, m) for owner, m in transaction.kept if owner not in victims]
        transaction.nested = [x for x in transaction.nested if x not in victims]

    def _change(self, owner: int) -> tuple[Message, Message]:
        self._value += 1
        xid = Xid(owner)
        values = (str(self._value), "x" * self.rng.choice([0, 5, 200]))
        match self.rng.choice("iiimt"):
            case "i":
                return Insert(T, values), Insert(T, values, xid)
            case "t":
                return Truncate((T, Oid(7)), True, False), Truncate((T, Oid(7)), True, False, xid)
            case _:
                content = values[0].encode()
                return (
                    LogicalMessage(True, Lsn(1), "note", content),
                    LogicalMessage(True, Lsn(1), "note", content, xid),
                )

    def _ordinary(self) -> None:
        lsn, xid = self._next_lsn(), self._next_xid()
        changes = [self._change(xid)[0] for _ in range(self.rng.choice([0, 1, 5, 60]))]
        end = Lsn(lsn.value + 8)
        self.sent += [Begin(lsn, TIME, Xid(xid)), *changes, Commit(lsn, end, TIME)]
        self.committed.append((end, xid, changes))

    def _next_xid(self) -> int:
        self._xid += 1
        return self._xid

    def _next_lsn(self) -> Lsn:
        self._lsn += 10
        return Lsn(self._lsn)


@pytest.mark.parametrize("number", range(30))
def test_what_is_committed_comes_out_in_commit_order(number: int) -> None:
    """Pieces and limits may fall anywhere, and files may be shared or not."""
    print(f"LAKEPROOF_SEED={SEED} number {number}")  # noqa: T201  (to run a failure again)
    rng = random.Random(SEED + number)
    server = _Server(rng)
    for _ in range(150):
        server.step()
    server.finish()
    buffer = TransactionBuffer(
        rng.choice([0, 2000, 50_000, 1 << 20]), rng.choice([1, 2, 64]), unit_bytes=rng.choice([300, 3000, 1 << 20])
    )
    stream = frames(*server.sent)
    actual: list[tuple[Lsn, int, list[Message]]] = []
    held: list[DecodeUnit | LargeTransaction] = []
    while stream:
        size = rng.randint(1, 50)
        buffer.feed(MessageBuffer.of(stream[:size]))
        stream = stream[size:]
        held += buffer.take(everything=rng.random() < 0.3)
        while held and rng.random() < 0.7:
            actual += _transactions(held.pop(0))
    for unit in [*held, *buffer.take(everything=True)]:
        actual += _transactions(unit)
    assert actual == server.committed
    buffer.close()
    assert (buffer._memory._used_bytes, len(buffer._files)) == (0, 0)


def _transactions(unit: DecodeUnit | LargeTransaction) -> list[tuple[Lsn, int, list[Message]]]:
    if isinstance(unit, LargeTransaction):
        inside = [decode(octets) for part in unit.parts() for octets in part.buffer]
        unit.close()
        return [(unit.end_lsn, unit.xid, inside)]
    actual: list[tuple[Lsn, int, list[Message]]] = []
    for message in (decode(octets) for wire in unit.buffers for octets in wire):
        match message:
            case Begin():
                actual.append((Lsn.ZERO, message.xid, []))
            case Commit():
                actual[-1] = (message.end_lsn, *actual[-1][1:])
            case _:
                actual[-1][2].append(message)
    return actual


def test_an_abort_frees_the_disk_at_once() -> None:
    """A transaction's abort removes its file; a last subtransaction's abort removes its bytes, so retries don't add up."""
    buffer = TransactionBuffer(0, 64)
    buffer.feed(MessageBuffer.of(frames(StreamStart(Xid(9), True), Insert(T, ("1", "kept"), Xid(9)), StreamStop())))
    (spool,) = buffer._streams.spools
    kept = spool._spill.size if spool._spill else 0
    for attempt in range(10, 20):
        rows = [Insert(T, ("2", "x" * 10_000), Xid(attempt))] * 5
        buffer.feed(MessageBuffer.of(frames(StreamStart(Xid(9), False), *rows, StreamStop())))
        assert spool._spill is not None
        assert spool._spill.size > 50_000
        buffer.feed(MessageBuffer.of(frames(StreamAbort(Xid(9), Xid(attempt), None, None))))
        assert (spool._spill.size, buffer._files._files[0].end, spool.count) == (kept, kept, 1)
    buffer.feed(MessageBuffer.of(frames(StreamAbort(Xid(9), Xid(9), Lsn(5), TIME))))
    assert (len(buffer._files), len(buffer._streams.spools), buffer.nothing_waits) == (0, 0, True)


def test_an_open_streamed_transaction_does_not_stand_in_the_way() -> None:
    """A keepalive's position may be acknowledged, except in the middle of a chunk; others are complete at their commit."""
    buffer = TransactionBuffer(1 << 20)
    buffer.feed(MessageBuffer.of(frames(StreamStart(Xid(9), True), Insert(T, ("1",), Xid(9)))))
    assert not buffer.nothing_waits
    buffer.feed(MessageBuffer.of(frames(StreamStop())))
    assert (buffer.nothing_waits, len(buffer._streams.spools)) == (True, 1)
    buffer.feed(MessageBuffer.of(frames(Begin(Lsn(50), TIME, Xid(10)), Commit(Lsn(50), Lsn(58), TIME))))
    assert (buffer.complete_end, buffer.complete) == (Lsn(58), True)


def test_many_open_transactions_share_a_bounded_number_of_files() -> None:
    """Beyond the limit; a file goes when the last of its transactions has ended."""
    buffer = TransactionBuffer(0, 3)
    for xid in range(100, 150):
        buffer.feed(
            MessageBuffer.of(frames(StreamStart(Xid(xid), True), Insert(T, (str(xid),), Xid(xid)), StreamStop()))
        )
    for xid in range(149, 99, -1):
        buffer.feed(
            MessageBuffer.of(frames(StreamStart(Xid(xid), False), Insert(T, (str(-xid),), Xid(xid)), StreamStop()))
        )
        assert len(buffer._files) == 3
    for xid in range(100, 150):
        buffer.feed(MessageBuffer.of(frames(StreamCommit(Xid(xid), Lsn(xid), Lsn(xid + 1), TIME))))
    actual = [_transactions(unit)[0] for unit in buffer.take(everything=True)]
    assert [[m.new for m in inside if isinstance(m, Insert)] for _, _, inside in actual] == [
        [(str(xid),), (str(-xid),)] for xid in range(100, 150)
    ]
    assert len(buffer._files) == 0


def test_small_subtransactions_count_with_what_they_cost() -> None:
    """A block of one message takes much more memory than its bytes: the limit holds for that too."""
    buffer = TransactionBuffer(1 << 20, 1)
    buffer.feed(MessageBuffer.of(frames(StreamStart(Xid(9), True))))
    for number in range(20):
        rows = (Insert(T, ("1",), Xid(100 + number * 200 + position)) for position in range(200))
        buffer.feed(MessageBuffer.of(frames(*rows)))
        (spool,) = buffer._streams.spools
        assert 600 * len(spool._waiting) <= buffer._memory._used_bytes <= 1 << 20
    assert spool.spilled
    buffer.feed(MessageBuffer.of(frames(StreamStop(), StreamCommit(Xid(9), Lsn(5), Lsn(6), TIME))))
    [(_, _, inside)] = _transactions(buffer.take(everything=False)[0])
    assert [m.xid for m in inside if isinstance(m, Insert)] == [None] * 4000


def test_a_small_slice_does_not_keep_what_came_with_it() -> None:
    """A chunk of a streamed transaction and a tiny one in each read: only the tiny ones wait in memory for a unit."""
    buffer = TransactionBuffer(0, 1)
    for number in range(10):
        rows = [Insert(T, ("x" * 1000,), Xid(9))] * 100
        small = (Begin(Lsn(50 + number), TIME, Xid(10)), Commit(Lsn(50 + number), Lsn(51 + number), TIME))
        buffer.feed(MessageBuffer.of(frames(StreamStart(Xid(9), number == 0), *rows, StreamStop(), *small)))
    assert sum(len(wire.octets) for wire in buffer._ready) < 10_000
    buffer.close()


def test_thousands_of_subtransactions_cost_a_few_bytes_each() -> None:
    """Every second one is rolled back before the last; bytes are counted, not time."""
    buffer = TransactionBuffer(0, 1)
    count = 4_000
    buffer.feed(MessageBuffer.of(frames(StreamStart(Xid(9), True))))
    buffer.feed(MessageBuffer.of(frames(*(Insert(T, (str(n),), Xid(10 + n)) for n in range(count)))))
    buffer.feed(MessageBuffer.of(frames(StreamStop())))
    (spool,) = buffer._streams.spools
    assert (spool.blocks, len(spool._waiting), buffer._memory._used_bytes) == (count, 0, 0)
    assert spool._xids.itemsize + spool._sizes.itemsize == 12
    buffer.feed(MessageBuffer.of(frames(*(StreamAbort(Xid(9), Xid(10 + n), None, None) for n in range(0, count, 2)))))
    buffer.feed(MessageBuffer.of(frames(StreamCommit(Xid(9), Lsn(5), Lsn(6), TIME))))
    (unit,) = buffer.take(everything=False)
    [(_, _, inside)] = _transactions(unit)
    assert [m.new[0] for m in inside if isinstance(m, Insert)] == [str(n) for n in range(1, count, 2)]


_CHANGE = Insert(T, ("1",), Xid(9))
_START, _STOP = StreamStart(Xid(9), True), StreamStop()


@pytest.mark.parametrize(
    "messages",
    [
        [_STOP],
        [_START, _START],
        [_START, _STOP, _START],
        [StreamStart(Xid(9), False)],
        [StreamCommit(Xid(9), Lsn(5), Lsn(6), TIME)],
        [_START, StreamCommit(Xid(9), Lsn(5), Lsn(6), TIME)],
        [_START, _CHANGE, _STOP, StreamCommit(Xid(9), Lsn(5), Lsn(0), TIME)],
        [_START, _CHANGE, _STOP, StreamCommit(Xid(9), Lsn(5), Lsn(1 << 63), TIME)],
        [Begin(Lsn(5), TIME, Xid(8)), _START],
        [_START, Begin(Lsn(5), TIME, Xid(8))],
        [_START, LogicalMessage(False, Lsn(1), "p", b"", Xid(9))],
        [_START, StreamAbort(Xid(9), Xid(9), None, None)],
        [TwoPhase(b"P", b"\0")],
    ],
)
def test_what_no_server_sends_is_refused_by_name(messages: list[Message]) -> None:
    """Chunks out of order, a commit without chunks, transactions in chunks and prepared ones."""
    buffer = TransactionBuffer(1 << 20)
    with pytest.raises(SourceError, match="replication stream"):
        buffer.feed(MessageBuffer.of(frames(*messages)))
    buffer.close()


def test_a_message_too_short_for_its_xid_is_refused() -> None:
    """A short message would be read as another transaction's."""
    buffer = TransactionBuffer(1 << 20)
    with pytest.raises(SourceError, match="cut off"):
        buffer.feed(MessageBuffer.of([*frames(_START), frames(_CHANGE)[0][:28]]))


def test_what_waits_on_disk_is_bounded_and_counted_exactly() -> None:
    """Beyond the limit nothing is written; what is cut off, rolled back or closed counts no more, in shared files too."""
    for files_max in (1, 4):
        files = SpillFiles(files_max, 1000)
        one, two = Spill(files), Spill(files)
        one.write(bytes(400))
        assert not files.crowded
        two.write(bytes(500))
        assert files.crowded
        with pytest.raises(
            SpillLimitError, match=r"waiting transactions take more than 1000 bytes.*spill_bytes_max"
        ) as caught:
            one.write(bytes(101))
        assert not caught.value.alone
        two.cut(100)
        one.write(bytes(500))
        with pytest.raises(SpillLimitError) as caught:
            one.write(bytes(101))
        assert caught.value.alone
        one.close()
        two.close()
        three = Spill(files)
        three.write(bytes(1000))
        with pytest.raises(SpillLimitError, match="by itself"):
            three.write(b"x")
        three.close()


def test_without_a_number_the_limit_is_half_of_what_is_free() -> None:
    """The limit counts the disk's free room when the first transaction spills."""
    spill = Spill(SpillFiles(1, free=lambda: 2000))
    spill.write(bytes(1000))
    with pytest.raises(SpillLimitError, match="1000 bytes"):
        spill.write(b"x")
    spill.close()
