"""Frames are cut at commits, whatever pieces they come in, and memory does not grow with a transaction."""

from __future__ import annotations

import random
import struct

import pytest

from wal2delta.drain import buffer as buffer_module
from wal2delta.drain.buffer import LargeTransaction, TransactionBuffer, Unit
from wal2delta.drain.spill import Spill
from wal2delta.lsn import Lsn

_HEADER = b"w" + bytes(24)
_EPOCH_US = 946_684_800_000_000


def _begin(xid: int) -> bytes:
    return _HEADER + struct.pack(">cQqI", b"B", 1, 5, xid)


def _commit(end: int) -> bytes:
    return _HEADER + struct.pack(">cBQQq", b"C", 0, end - 1, end, 5)


def _change(number: int, size: int = 50) -> bytes:
    return _HEADER + b"I" + struct.pack(">I", number) + bytes(size)


def _transaction(end: int, changes: int, size: int = 50) -> list[bytes]:
    return [_begin(end), *(_change(end * 1000 + n, size) for n in range(changes)), _commit(end)]


def _frames(units: list[Unit | LargeTransaction]) -> list[bytes]:
    found = []
    for unit in units:
        if isinstance(unit, Unit):
            found += [f for f in unit.frames if f[25:26] == b"I"]
        else:
            found += [f for part in unit.parts() for f in part]
            unit.close()
    return found


@pytest.mark.parametrize("seed", range(20))
def test_units_hold_whole_transactions_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever pieces the socket brings, and wherever the limits fall."""
    monkeypatch.setattr(buffer_module, "UNIT_BYTES", 2000)
    chance = random.Random(seed)
    transactions = [_transaction(end, chance.choice((0, 1, 5, 40, 300))) for end in range(10, 40)]
    stream = [frame for transaction in transactions for frame in transaction]
    buffer = TransactionBuffer(spill_bytes=chance.choice((1000, 5000, 1 << 20)))
    units: list[Unit | LargeTransaction] = []
    most = 0
    while stream:
        size = chance.randint(1, 30)
        buffer.feed(stream[:size])
        stream = stream[size:]
        most = max(most, buffer.complete_bytes)
        units += buffer.take(everything=chance.random() < 0.1)
    units += buffer.take(everything=True)
    assert buffer.empty
    assert most < 2000
    ends = [unit.end_lsn for unit in units]
    assert ends == sorted(ends)
    assert ends[-1] == Lsn(39)
    assert all(unit.frames[-1] == _commit(unit.end_lsn.value) for unit in units if isinstance(unit, Unit))
    assert _frames(units) == [f for transaction in transactions for f in transaction[1:-1]]


def test_an_open_transaction_stays_until_its_commit() -> None:
    """Only what is complete is given away."""
    buffer = TransactionBuffer(spill_bytes=1 << 20)
    buffer.feed([*_transaction(10, 2), *_transaction(20, 2)[:-1]])
    assert [u.end_lsn for u in buffer.take(everything=True)] == [Lsn(10)]
    assert (buffer.transaction_open, buffer.complete, buffer.empty) == (True, False, False)
    buffer.feed([_commit(20)])
    assert buffer.complete_end == Lsn(20)
    assert (buffer.take(everything=True)[0].others, buffer.empty) == (2, True)


def test_a_message_between_transactions_opens_none() -> None:
    """A heartbeat alone must not stand in the way of progress."""
    buffer = TransactionBuffer(spill_bytes=1 << 20)
    message = _HEADER + b"M" + bytes(20)
    buffer.feed([message])
    assert buffer.empty
    buffer.feed([message, *_transaction(10, 1), message])
    assert (len(buffer.take(everything=True)), buffer.empty) == (1, True)


def test_a_large_transaction_spills_and_comes_back_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory there is never more than the limit and one read; its xid and time are its begin's."""
    monkeypatch.setattr(buffer_module, "UNIT_BYTES", 1000)
    buffer = TransactionBuffer(spill_bytes=3000)
    frames = _transaction(77, 500)
    for at in range(0, len(frames), 10):
        buffer.feed(frames[at : at + 10])
        assert sum(map(len, buffer._open)) < 3000
    (unit,) = buffer.take(everything=False)
    assert isinstance(unit, LargeTransaction)
    assert (unit.spilled, unit.end_lsn, unit.xid, unit.commit_time_us) == (True, Lsn(77), 77, _EPOCH_US + 5)
    assert unit.memory_bytes < 3000 < unit.size == sum(map(len, frames))
    parts = list(unit.parts())
    assert all(sum(map(len, part)) < 1100 for part in parts)
    assert [f for part in parts for f in part] == frames[1:-1]
    unit.close()


def test_a_spill_gives_back_what_was_written() -> None:
    """Empty frames too, in order, more than once."""
    spill = Spill()
    frames = [b"", b"a", bytes(100_000), b"\xff"]
    spill.write(frames[:2])
    spill.write(frames[2:])
    assert (spill.count, spill.size) == (4, 100_002)
    assert list(spill.frames()) == list(spill.frames()) == frames
    spill.close()
