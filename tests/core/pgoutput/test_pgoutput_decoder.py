"""The plain decoder: each message there and back, and every way in which bytes can be no message."""

from __future__ import annotations

import struct

import pytest

from lakeproof.lsn import Lsn
from lakeproof.names import Oid, Xid
from lakeproof.pgoutput.decoder import COLUMNS_MAX, ProtocolError, decode
from lakeproof.pgoutput.messages import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldImage,
    Origin,
    Relation,
    RelationColumn,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    TwoPhase,
    TypeName,
    Update,
)
from lakeproof.schema import Identity
from tests.core.pgoutput.pgoutput_encoder import encode, tuple_data

TABLE, XID, TIME = Oid(16384), Xid(4_000_000_000), 1_700_000_000_123_456
LSN, END = Lsn.parse("1/DEADBEEF"), Lsn.parse("1/DEADBF20")
COLUMNS = (RelationColumn("id", Oid(23), -1, True), RelationColumn("größe", Oid(1700), 655366, False))

PLAIN: list[Message] = [
    Begin(LSN, TIME, XID),
    Commit(LSN, END, TIME),
    Origin(Lsn.ZERO, "elsewhere"),
    Relation(TABLE, "public", "order lines", Identity.DEFAULT, COLUMNS),
    Relation(Oid(4_294_967_295), "pg_catalog", "t", Identity.FULL, ()),
    TypeName(Oid(70000), "pg_catalog", "int4"),
    Insert(TABLE, ("1", None, UNCHANGED, "", "ß€🜁")),
    Insert(TABLE, ()),
    Update(TABLE, None, None, ("1", UNCHANGED)),
    Update(TABLE, OldImage.KEY, ("1", None), ("2", UNCHANGED)),
    Update(TABLE, OldImage.ROW, ("1", "x"), ("1", None)),
    Delete(TABLE, OldImage.KEY, ("1", None)),
    Delete(TABLE, OldImage.ROW, ("1", "x")),
    Truncate((TABLE, Oid(16385)), True, False),
    Truncate((TABLE,), False, True),
    LogicalMessage(True, LSN, "prefix", b"\0\xff"),
    LogicalMessage(False, LSN, "", b""),
    StreamStart(XID, True),
    StreamStop(),
    StreamCommit(XID, LSN, END, TIME),
    StreamAbort(XID, Xid(7), None, None),
    StreamAbort(XID, Xid(7), LSN, TIME),
]
STREAMED: list[Message] = [
    Relation(TABLE, "public", "t", Identity.NOTHING, COLUMNS, XID),
    TypeName(Oid(70000), "public", "mood", XID),
    Insert(TABLE, ("1", None), XID),
    Update(TABLE, OldImage.KEY, ("1", None), ("2", UNCHANGED), XID),
    Delete(TABLE, OldImage.KEY, ("1", None), XID),
    Truncate((TABLE,), False, False, XID),
    LogicalMessage(True, LSN, "prefix", b"x", XID),
]


def _name(message: Message) -> str:
    return type(message).__name__


@pytest.mark.parametrize("message", PLAIN, ids=_name)
def test_a_message_is_read_as_it_was_written(message: Message) -> None:
    """Every message of protocols 1 to 4, outside of stream chunks."""
    assert decode(encode(message)) == message


@pytest.mark.parametrize("message", STREAMED, ids=_name)
def test_a_streamed_change_is_read_with_its_xid(message: Message) -> None:
    """Between Stream Start and Stream Stop changes carry the xid of their (sub)transaction."""
    assert decode(encode(message), in_stream=True) == message


@pytest.mark.parametrize("message", PLAIN, ids=_name)
def test_a_message_cut_anywhere_is_refused(message: Message) -> None:
    """A message without its last byte is refused (an abort also has a short form, which is whole)."""
    whole = encode(message)
    for length in range(len(whole)):
        if isinstance(message, StreamAbort) and length == 9:
            continue
        with pytest.raises(ProtocolError):
            decode(whole[:length])


@pytest.mark.parametrize("message", STREAMED, ids=_name)
def test_a_streamed_message_cut_anywhere_is_refused(message: Message) -> None:
    """The message is inside a chunk."""
    whole = encode(message)
    for length in range(len(whole)):
        with pytest.raises(ProtocolError):
            decode(whole[:length], in_stream=True)


@pytest.mark.parametrize("message", [*PLAIN, *STREAMED], ids=_name)
@pytest.mark.parametrize("tail", [b"\0", b"n", b"t\0\0\0\0"])
def test_bytes_after_a_message_are_refused(message: Message, tail: bytes) -> None:
    """Every byte is consumed, or the message is not what we take it for."""
    with pytest.raises(ProtocolError):
        decode(encode(message) + tail, in_stream=message in STREAMED)


@pytest.mark.parametrize("tag", sorted(set(range(256)) - set(b"BCORYIUDTMSEcAbPKrp")))
def test_an_unknown_tag_is_refused(tag: int) -> None:
    """Nothing is skipped because it is not known."""
    with pytest.raises(ProtocolError, match="unknown"):
        decode(bytes([tag]) + encode(PLAIN[0])[1:])


@pytest.mark.parametrize("message", PLAIN[6:13], ids=_name)
def test_no_other_letter_stands_for_a_tuple_or_a_value(message: Message) -> None:
    """A mutated letter is refused, or gives another message; never the same."""
    whole = bytearray(encode(message))
    for position in range(5, len(whole)):
        for octet in b"NKOntub\0x\xff":
            mutated = bytes(whole[:position]) + bytes([octet]) + bytes(whole[position + 1 :])
            if mutated == bytes(whole):
                continue
            try:
                assert decode(mutated) != message
            except ProtocolError:
                continue


@pytest.mark.parametrize("tag", [b"b", b"P", b"K", b"r", b"p"])
def test_a_message_of_a_transaction_in_two_phases_is_known_by_its_tag(tag: bytes) -> None:
    """A slot that sends one is refused, whatever it says."""
    assert decode(tag + b"\0gid") == TwoPhase(tag, b"\0gid")


INSERT = b"I" + struct.pack(">I", TABLE) + b"N"
RELATION = b"R" + struct.pack(">I", TABLE) + b"public\0t\0"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "empty"),
        (INSERT + b"\xff\xff", "-1 columns"),
        (INSERT + struct.pack(">h", COLUMNS_MAX + 1) + b"n" * (COLUMNS_MAX + 1), "columns"),
        (INSERT + b"\0\2n", "1 bytes are announced, 0 are left"),
        (INSERT + b"\0\1nn", "left over"),
        (INSERT + b"\0\1t\xff\xff\xff\xff", "-1 bytes are announced"),
        (INSERT + b"\0\1t\x80\0\0\0", "announced"),
        (INSERT + b"\0\1t\x7f\xff\xff\xffabc", "2147483647 bytes are announced, 3 are left"),
        (INSERT + b"\0\1t\0\0\0\4abc", "4 bytes are announced, 3 are left"),
        (INSERT + b"\0\1b\0\0\0\1\1", "binary"),
        (INSERT + b"\0\1x", "unknown"),
        (INSERT[:-1] + b"K\0\1n", "begins with"),
        (b"U" + INSERT[1:5] + b"K" + tuple_data(("1",)), "announced"),
        (b"U" + INSERT[1:5] + b"K" + tuple_data(("1",)) + b"K" + tuple_data(("1",)), "begins with"),
        (b"U" + INSERT[1:5] + b"O" + tuple_data((UNCHANGED,)) + b"N" + tuple_data(("1",)), "unchanged"),
        (b"U" + INSERT[1:5] + b"X" + tuple_data(("1",)), "begins with"),
        (b"D" + INSERT[1:5] + b"N" + tuple_data(("1",)), "begins with"),
        (b"D" + INSERT[1:5] + b"K" + tuple_data((UNCHANGED,)), "unchanged"),
        (b"T" + struct.pack(">i", 0) + b"\0", "0 relations"),
        (b"T" + struct.pack(">i", -1) + b"\0", "-1 relations"),
        (b"T" + struct.pack(">i", 1) + b"\4" + INSERT[1:5], "unknown bits"),
        (b"T" + struct.pack(">i", 2**31 - 1) + b"\0" + INSERT[1:5], "announced"),
        (RELATION + b"x\0\0", "replica identity"),
        (RELATION + b"d\xff\xff", "columns"),
        (RELATION + b"d\0\1\2a\0" + bytes(8), "unknown bits"),
        (RELATION + b"d\0\1\1a", "no end"),
        (RELATION[:-3] + b"\xff\0d\0\0", "UTF-8"),
        (b"C\1" + bytes(24), "flags byte is 1"),
        (b"M\2" + bytes(8) + b"\0" + bytes(4), "unknown bits"),
        (b"M\1" + bytes(8) + b"\0" + struct.pack(">i", -1), "announced"),
        (b"S" + bytes(4) + b"\2", "unknown bits"),
        (b"A" + bytes(12), "announced"),
    ],
)  # fmt: skip
def test_what_no_server_sends_is_refused_with_its_reason(payload: bytes, reason: str) -> None:
    """Bad counts, lengths, letters, flags and encodings, each named."""
    with pytest.raises(ProtocolError, match=reason):
        decode(payload)


def test_an_error_names_tag_and_offset_and_no_value() -> None:
    """The text of the message goes to logs."""
    with pytest.raises(ProtocolError) as caught:
        decode(INSERT + b"\0\2t\0\0\0\6secretx")
    assert (caught.value.tag, caught.value.offset) == (b"I", 20)
    assert "secret" not in str(caught.value)
