"""Every message that servers 14 and 18 sent when they were recorded (`record_messages.py`) is read, exactly."""

from __future__ import annotations

import pytest

from lakeproof.drain.transactions.buffer import TransactionBuffer
from lakeproof.drain.transactions.units import DecodeUnit, LargeTransaction
from lakeproof.errors import SourceError
from lakeproof.pgoutput.batch import BatchDecoder, TransactionInfo
from lakeproof.pgoutput.decoder import decode
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.pgoutput.messages import LogicalMessage, Message, StreamAbort, StreamStart, StreamStop
from lakeproof.pgoutput.relations import RelationCache
from tests.core.pgoutput.pgoutput_encoder import encode, frame
from tests.core.pgoutput.pgoutput_random import resolve
from tests.core.pgoutput.recorded_messages import SENT, recorded


def _decoded(messages: list[bytes]) -> list[Message]:
    actual, in_stream = [], False
    for octets in messages:
        message = decode(octets, in_stream=in_stream)
        in_stream = isinstance(message, StreamStart) or (in_stream and not isinstance(message, StreamStop))
        actual.append(message)
    return actual


@pytest.mark.parametrize("name", SENT)
def test_every_message_occurs_and_comes_back_byte_for_byte(name: str) -> None:
    """The decoder reads each message and the tests' own encoder writes it again, so nothing is skipped or misread."""
    messages = recorded(name)
    assert "".join(sorted({octets[:1].decode() for octets in messages})) == SENT[name]
    decoded = _decoded(messages)
    assert [encode(message) for message in decoded] == messages
    aborts = [message for message in decoded if isinstance(message, StreamAbort)]
    assert {abort.abort_lsn is None for abort in aborts} == {name != "18-parallel"}
    printed = [message for message in decoded if isinstance(message, LogicalMessage)]
    assert {(m.transactional, m.xid is None) for m in printed} == {(True, True), (True, False), (False, True)}


@pytest.mark.parametrize("name", SENT)
def test_what_was_sent_goes_through_buffer_and_batch_decoder(name: str) -> None:
    """Ordinary and streamed transactions; of a recording with prepared ones, what comes before them.

    An ordinary transaction of it relies on a schema that only a streamed one has announced.
    """
    buffer = TransactionBuffer(1000, 1)
    relations = RelationCache(resolve)
    rows = streamed = 0
    for octets in recorded(name):
        if octets[:1] in b"bp":
            with pytest.raises(SourceError, match="prepared"):
                buffer.feed(MessageBuffer.of([frame(octets)]))
            break
        buffer.feed(MessageBuffer.of([frame(octets)]))
        for unit in buffer.take(everything=True):
            if isinstance(unit, DecodeUnit):
                rows += BatchDecoder(relations).decode(*unit.buffers).rows
            else:
                streamed += 1
                rows += _rows(unit, relations)
    assert (streamed > 0, rows > 1000) == (True, True)
    buffer.close()


def _rows(unit: LargeTransaction, relations: RelationCache) -> int:
    own = relations.streamed()
    info = TransactionInfo(unit.end_lsn, unit.xid, unit.commit_time_us)
    rows = seq = 0
    for part in unit.parts():
        own.arrival = part.arrival
        batch = BatchDecoder(own).decode_part(part.buffer, info, seq)
        rows, seq = rows + batch.rows, batch.next_seq
    relations.absorb(own)
    unit.close()
    return rows
