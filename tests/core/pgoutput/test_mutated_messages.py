"""Damaged bytes: what servers sent, with bits flipped, bytes cut, doubled and put elsewhere.

Each is decoded as it stands or refused with a named error, by the plain decoder, by the buffer that puts streamed
transactions together, and by the batch decoder behind it. Time and memory are bounded by the message: an announced length or
count is never believed.
"""

from __future__ import annotations

import os
import random
import struct
import tracemalloc

import pytest

from lakeproof.drain.transactions.buffer import TransactionBuffer
from lakeproof.drain.transactions.units import LargeTransaction
from lakeproof.errors import SourceError
from lakeproof.pgoutput.batch import BatchDecoder, TransactionInfo
from lakeproof.pgoutput.decoder import ProtocolError, decode
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.pgoutput.relations import RelationCache
from lakeproof.values.cast import CastError
from tests.core.pgoutput.pgoutput_encoder import encode, frame
from tests.core.pgoutput.pgoutput_random import resolve
from tests.core.pgoutput.recorded_messages import SENT, recorded

SEED = int(os.environ.get("LAKEPROOF_SEED", "0"))
PARTS = 10
# Of the plain decoder in each part; the default run has the beginning of one part.
MESSAGES = 100_000
SOME = 20_000
STREAMS = 40
WATCHED = 2_000
_EXTREMES = [struct.pack(">i", n) for n in (-1, 0, 1, 2**31 - 1, -(2**31), 2**24)]


def mutated(octets: bytes, rng: random.Random) -> bytes:
    """Damage the message in one to three places."""
    damaged = bytearray(octets)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        position = rng.randrange(len(damaged)) if damaged else 0
        match rng.randrange(7):
            case 0 if damaged:
                damaged[position] ^= 1 << rng.randrange(8)
            case 1 if damaged:
                damaged[position] = rng.randrange(256)
            case 2:
                del damaged[position:]
            case 3:
                del damaged[position : position + rng.randrange(1, 9)]
            case 4:
                damaged[position:position] = rng.randbytes(rng.randrange(1, 9))
            case 5:
                damaged[position : position + 4] = rng.choice(_EXTREMES)
            case _:
                damaged[position:position] = damaged[position : position + rng.randrange(1, 30)]
    return bytes(damaged)


def _rng(part: int) -> random.Random:
    print(f"LAKEPROOF_SEED={SEED} part {part}")  # noqa: T201  (to run a failure again)
    return random.Random(SEED * PARTS + part)


@pytest.mark.parametrize(
    ("part", "messages"), [(0, SOME), *(pytest.param(part, MESSAGES, marks=pytest.mark.full) for part in range(PARTS))]
)
def test_a_damaged_message_is_read_as_it_stands_or_refused(part: int, messages: int) -> None:
    """A message that is accepted is written again as exactly the same bytes: no value was made up, none left out."""
    rng = _rng(part)
    # Long runs of equal inserts would be most of it.
    sent = sorted({octets for name in SENT for octets in recorded(name)}, key=lambda m: (m[:1], m))
    by_tag = {tag: [m for m in sent if m[:1] == tag] for tag in {m[:1] for m in sent}}
    tags = sorted(by_tag)
    accepted = 0
    for position in range(messages):
        # Watching memory makes everything ten times slower: the first ones stand for all.
        if position in (0, WATCHED):
            (tracemalloc.start if position == 0 else tracemalloc.stop)()
        octets = mutated(rng.choice(by_tag[rng.choice(tags)]), rng)
        try:
            message = decode(octets, in_stream=rng.random() < 0.5)
        except ProtocolError:
            pass
        else:
            accepted += 1
            # An empty namespace is pg_catalog's.
            assert encode(message) == octets or b"pg_catalog" in octets
        if position == WATCHED - 1:
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
    assert accepted > messages // 100


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.full) for part in range(1, PARTS))])
def test_a_stream_with_a_damaged_message_lands_or_is_refused(part: int) -> None:
    """The path is buffer, spool on disk and batch decoder: a named error, or rows; nothing stays open."""
    rng = _rng(part)
    refused = 0
    streams = {name: _short(recorded(name)) for name in SENT}
    for _ in range(STREAMS):
        stream = list(streams[rng.choice(sorted(streams))])
        position = rng.randrange(len(stream))
        stream[position] = mutated(stream[position], rng)
        buffer = TransactionBuffer(rng.choice((100, 10_000)), 1)
        try:
            _land(buffer, [frame(octets) for octets in stream], rng)
        except (SourceError, ProtocolError, CastError):
            refused += 1
        finally:
            buffer.close()
        assert (buffer._memory._used_bytes, len(buffer._files)) == (0, 0)
    assert refused > STREAMS // 4


def _short(messages: list[bytes]) -> list[bytes]:
    """Without what comes from the first prepared transaction on, and of equal neighbours' runs the first few only."""
    actual: list[bytes] = []
    run = 0
    for octets in messages:
        if octets[:1] in b"bp":
            break
        run = run + 1 if actual and octets[:1] == b"I" == actual[-1][:1] else 0
        if run < 3:
            actual.append(octets)
    return actual


def _land(buffer: TransactionBuffer, frames: list[bytes], rng: random.Random) -> None:
    relations = RelationCache(resolve)
    while frames:
        size = rng.choice((1, 7, 1000))
        buffer.feed(MessageBuffer.of(frames[:size]))
        frames = frames[size:]
        units = buffer.take(everything=True)
        try:
            for unit in units:
                if isinstance(unit, LargeTransaction):
                    _land_large(unit, relations)
                else:
                    BatchDecoder(relations).decode(*unit.buffers)
        finally:
            for unit in units:
                if isinstance(unit, LargeTransaction):
                    unit.close()


def _land_large(unit: LargeTransaction, relations: RelationCache) -> None:
    own = relations.streamed() if unit.streamed else relations
    info = TransactionInfo(unit.end_lsn, unit.xid, unit.commit_time_us)
    seq = 0
    for part in unit.parts():
        own.arrival = part.arrival
        seq = BatchDecoder(own).decode_part(part.buffer, info, seq).next_seq
    if unit.streamed:
        relations.absorb(own)
