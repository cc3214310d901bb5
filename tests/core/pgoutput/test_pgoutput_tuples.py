"""The compiled walk over tuples on damaged messages: what the plain decoder reads, or a refusal, and no byte beyond the end.

Run with NUMBA_BOUNDSCHECK=1 (and a NUMBA_CACHE_DIR of its own) every access to an array is checked as well.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

import numpy as np
import pytest

from lakeproof.pgoutput.decoder import ProtocolError, decode
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.pgoutput.messages import UNCHANGED, Delete, Insert, OldImage, Update, Values
from lakeproof.pgoutput.tuples import TupleRows, walk
from lakeproof.values.parse import spans
from tests.core.pgoutput.pgoutput_encoder import encode
from tests.core.pgoutput.pgoutput_random import Workload

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
BLOCK = 1000


@pytest.mark.parametrize("messages", [4_000, pytest.param(1_000_000, marks=pytest.mark.full)])
def test_a_damaged_message_is_walked_as_the_plain_decoder_reads_it_or_refused(messages: int) -> None:
    """Bytes changed, put in, left out, lengths moved, messages cut: what stands behind one is never taken for it."""
    print(f"LAKEPROOF_SEED={SEED}")  # noqa: T201  (to run a failure again)
    rng = random.Random(SEED)
    taken = 0
    for _ in range(messages // BLOCK):
        damaged = _damaged(rng)
        wire = _wire(damaged)
        for index, (message, _, columns) in enumerate(damaged):
            taken += _agree(wire, index, message, columns)
    # Neither nothing nor everything: the damage is such that both roads are tried.
    assert messages // 10 < taken < messages


def _damaged(rng: random.Random) -> list[tuple[bytes, bytes, int]]:
    """Messages with what was cut off behind them, and their number of columns."""
    actual: list[tuple[bytes, bytes, int]] = []
    while len(actual) < BLOCK:
        workload = Workload(rng)
        for change in workload.transaction(20):
            if isinstance(change, Insert | Update | Delete):
                whole = encode(change)
                values = change.old if isinstance(change, Delete) else change.new
                actual += [(*_damage(rng, whole), len(values)) for _ in range(10)]
    return actual[:BLOCK]


def _damage(rng: random.Random, whole: bytes) -> tuple[bytes, bytes]:
    message = bytearray(whole)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 5])):
        position = rng.randrange(5, len(message) + 1)
        put = bytes([rng.choice([0, 0, 1, 2, 0x7F, 0xFF, *b"tnubNKO", rng.randrange(256)])])
        message[position : position + rng.choice([0, 1, 1, 1, 2])] = put if rng.random() < 0.8 else b""
    # The batch decoder refuses what is shorter than a count before it walks.
    end = rng.randrange(8, len(message) + 1) if len(message) > 8 and rng.random() < 0.2 else len(message)
    return bytes(message[:end]).ljust(8, b"\0"), bytes(message[end:]) or whole[-20:]


def _wire(damaged: Sequence[tuple[bytes, bytes, int]]) -> MessageBuffer:
    sizes = np.array([[len(message), len(behind)] for message, behind, _ in damaged], np.int64)
    position = np.cumsum(sizes.sum(axis=1)) - sizes.sum(axis=1)
    data = b"".join(message + behind for message, behind, _ in damaged)
    return MessageBuffer(np.frombuffer(data, np.uint8), position, position + sizes[:, 0])


def _agree(wire: MessageBuffer, index: int, message: bytes, columns: int) -> bool:
    """True if both roads take the message; they must then agree about its values."""
    rows = 2 if message[:1] == b"U" and message[5:6] != b"N" else 1
    try:
        walked = walk(wire, np.array([index], np.int64), rows, columns)
    except ProtocolError:
        walked = None
    try:
        expected = _expected(message, columns)
    except ProtocolError:
        expected = None
    assert (walked is None) == (expected is None)
    if walked is not None:
        assert _values(wire, walked) == expected
    return walked is not None


def _expected(message: bytes, columns: int) -> list[Values] | None:
    """Return the plain decoder's answer, an update's unchanged values from its old image; None for what no server sends."""
    change = decode(message)
    assert isinstance(change, Insert | Update | Delete)
    old = None if isinstance(change, Insert) else change.old
    new = None if isinstance(change, Delete) else change.new
    tuples = [values for values in (old, new) if values is not None]
    if any(len(values) != columns for values in tuples) or (old is not None and UNCHANGED in old):
        return None
    if old is None or new is None:
        return tuples
    filled = tuple(o if n is UNCHANGED and o is not None else n for o, n in zip(old, new, strict=True))
    if isinstance(change, Update) and change.old_image is OldImage.ROW and UNCHANGED in filled:
        return None
    return [old, filled]


def _values(wire: MessageBuffer, rows: TupleRows) -> list[Values]:
    actual: list[Values] = []
    for row in range(len(rows.message)):
        cells = zip(rows.start[:, row].tolist(), rows.size[:, row].tolist(), strict=True)
        actual.append(
            tuple(
                None
                if size == spans.NULL
                else UNCHANGED
                if size == spans.UNCHANGED
                else _text(wire.octets.tobytes()[start : start + size])
                for start, size in cells
            )
        )
    assert rows.missing.tolist() == [(column < 0).sum() for column in rows.size]
    assert rows.unchanged.tolist() == [(column == spans.UNCHANGED).sum() for column in rows.size]
    return actual


def _text(octets: bytes) -> str | bytes:
    """Return the value as the plain decoder gives it: bytes if it is not UTF-8."""
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets
