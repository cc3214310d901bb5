"""Frames are cut at commits, whatever pieces they come in, and memory does not grow with a transaction."""

from __future__ import annotations

import random
import struct

import pytest

from lakeproof.drain.transactions.buffer import TransactionBuffer
from lakeproof.drain.transactions.spill import _File
from lakeproof.drain.transactions.units import DecodeUnit, LargeTransaction
from lakeproof.errors import InvariantError, SourceError
from lakeproof.lsn import Lsn
from lakeproof.pgoutput.message_buffer import MessageBuffer

_HEADER = b"w" + bytes(24)
_EPOCH_US = 946_684_800_000_000


def _begin(xid: int) -> bytes:
    return _HEADER + struct.pack(">cQqI", b"B", xid - 1, 5, xid)


def _commit(end: int) -> bytes:
    return _HEADER + struct.pack(">cBQQq", b"C", 0, end - 1, end, 5)


def _change(number: int, size: int = 50) -> bytes:
    return _HEADER + b"I" + struct.pack(">I", number) + bytes(size)


def _transaction(end: int, changes: int, size: int = 50) -> list[bytes]:
    return [_begin(end), *(_change(end * 1000 + n, size) for n in range(changes)), _commit(end)]


def _changes(units: list[DecodeUnit | LargeTransaction]) -> list[bytes]:
    actual = []
    for unit in units:
        if isinstance(unit, DecodeUnit):
            actual += [m for wire in unit.buffers for m in wire if m[:1] == b"I"]
        else:
            actual += [m for part in unit.parts() for m in part.buffer]
            unit.close()
    return actual


@pytest.mark.parametrize("seed", range(20))
def test_units_hold_whole_transactions_in_order(seed: int) -> None:
    """The pieces that the socket brings, and the limits, may fall anywhere."""
    chance = random.Random(seed)
    transactions = [_transaction(end, chance.choice((0, 1, 5, 40, 300))) for end in range(10, 40)]
    stream = [frame for transaction in transactions for frame in transaction]
    buffer = TransactionBuffer(spill_bytes=chance.choice((1000, 5000, 1 << 20)), unit_bytes=2000)
    units: list[DecodeUnit | LargeTransaction] = []
    most = 0
    while stream:
        size = chance.randint(1, 30)
        buffer.feed(MessageBuffer.of(stream[:size]))
        stream = stream[size:]
        most = max(most, buffer.complete_bytes)
        units += buffer.take(everything=chance.random() < 0.1)
    units += buffer.take(everything=True)
    assert buffer.nothing_waits
    assert most < 2000
    ends = [unit.end_lsn for unit in units]
    assert ends == sorted(ends)
    assert ends[-1] == Lsn(39)
    assert all(
        list(unit.buffers[-1])[-1] == _commit(unit.end_lsn.value)[25:] for unit in units if isinstance(unit, DecodeUnit)
    )
    assert _changes(units) == [f[25:] for transaction in transactions for f in transaction[1:-1]]


def test_an_open_transaction_stays_until_its_commit() -> None:
    """The buffer returns only complete transactions."""
    buffer = TransactionBuffer(spill_bytes=1 << 20)
    buffer.feed(MessageBuffer.of([*_transaction(10, 2), *_transaction(20, 2)[:-1]]))
    assert [u.end_lsn for u in buffer.take(everything=True)] == [Lsn(10)]
    assert (buffer.transaction_open, buffer.complete, buffer.nothing_waits) == (True, False, False)
    buffer.feed(MessageBuffer.of([_commit(20)]))
    assert buffer.complete_end == Lsn(20)
    assert (buffer.take(everything=True)[0].change_count, buffer.nothing_waits) == (2, True)


def test_a_large_transaction_spills_and_comes_back_in_parts() -> None:
    """Memory never holds more than the limit and one read; the parts have the xid and time of the begin."""
    buffer = TransactionBuffer(spill_bytes=3000, unit_bytes=1000)
    frames = _transaction(77, 500)
    for position in range(0, len(frames), 10):
        buffer.feed(MessageBuffer.of(frames[position : position + 10]))
        assert buffer._memory._used_bytes <= 3000
    (unit,) = buffer.take(everything=False)
    assert isinstance(unit, LargeTransaction)
    assert (unit.spilled, unit.end_lsn, unit.xid, unit.commit_time_us) == (True, Lsn(77), 77, _EPOCH_US + 5)
    assert unit.memory_bytes < 3000 < unit.size
    parts = [part.buffer for part in unit.parts()]
    assert all(part.size <= 1000 + 10 * 80 for part in parts)
    assert [m for part in parts for m in part] == [f[25:] for f in frames[1:-1]]
    unit.close()
    assert (buffer._memory._used_bytes, len(buffer._files)) == (0, 0)


def test_messages_of_no_transaction_end_where_they_stand() -> None:
    """Each is complete as it comes; inside a transaction it is a part of that."""
    buffer = TransactionBuffer(spill_bytes=1 << 20, unit_bytes=400)
    buffer.feed(
        MessageBuffer.of([_message(5), _message(6), *_transaction(10, 1), _message(12), _begin(20), _message(15)])
    )
    (unit,) = buffer.take(everything=True)
    assert isinstance(unit, DecodeUnit)
    assert (unit.end_lsn, sum(map(len, unit.buffers)), unit.change_count) == (Lsn(12), 6, 4)
    assert (buffer.transaction_open, buffer.complete) == (True, False)
    buffer.feed(MessageBuffer.of([_message(16), _commit(20)]))
    assert buffer.complete_end == Lsn(20)
    buffer.feed(MessageBuffer.of([_message(30 + n) for n in range(20)]))
    assert [u.end_lsn for u in buffer.take(everything=False)] == [Lsn(49)]
    assert buffer.nothing_waits


def _message(lsn: int) -> bytes:
    return _HEADER + b"M\0" + struct.pack(">Q", lsn) + b"beat\0" + struct.pack(">I", 1) + b"x"


def _feed_singly(buffer: TransactionBuffer, frames: list[bytes]) -> None:
    for frame in frames:
        buffer.feed(MessageBuffer.of([frame]))


@pytest.mark.parametrize(
    "frames",
    [
        [_begin(7)[:-1], *([_change(1)] * 20), _commit(7)],
        [_begin(7), *([_change(1)] * 20), _commit(8)],
        [_begin(7), *([_change(1)] * 20), _commit(7) + b"x"],
        [_change(1), *([_change(1)] * 20), _commit(7)],
    ],
    ids=["a begin cut off", "another commit", "a longer commit", "no begin"],
)
def test_what_is_no_transaction_is_refused_by_name(frames: list[bytes]) -> None:
    """The error is ours, not an accident of Python's."""
    buffer = TransactionBuffer(spill_bytes=1000, unit_bytes=100)
    with pytest.raises(SourceError):
        _feed_singly(buffer, frames)
    buffer.close()


def test_a_spill_file_that_is_shorter_than_what_was_written_is_named() -> None:
    """What is there is read at its place; the end of the file is no end of the message."""
    file = _File()
    with file._file:
        file.append(b"before")
        start = file.append(b"message")
        room = bytearray(7)
        file.read_into(start, memoryview(room))
        assert bytes(room) == b"message"
        with pytest.raises(InvariantError, match="shorter than what was written"):
            file.read_into(start, memoryview(bytearray(10)))
