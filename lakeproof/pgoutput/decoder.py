"""Decodes one pgoutput message from its bytes, exactly.

`batch.py` decodes batches, and asks this module for the reason when it refuses a message. Every read is bounded by the
message, every count is checked before it is used, and every byte is consumed; all else is a ProtocolError. Nothing is
guessed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType

from lakeproof.lsn import Lsn
from lakeproof.names import Oid, Xid
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
    Unchanged,
    Update,
    Value,
    Values,
)
from lakeproof.pgoutput.tags import TAGS, tag_of
from lakeproof.schema import Identity
from lakeproof.values.commit_times import of_number

# An XLogData frame has `w`, start, end and send time before the message.
HEADER_BYTES = 25
# PostgreSQL's own limit for a table (MaxHeapAttributeNumber).
COLUMNS_MAX = 1600

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_U32 = struct.Struct(">I")
_I64 = struct.Struct(">q")
_U64 = struct.Struct(">Q")


class ProtocolError(ValueError):
    """Bytes that are not pgoutput as we know it. The message names the tag and the offset, never a value."""

    def __init__(self, tag: bytes, offset: int, reason: str) -> None:
        super().__init__(f"pgoutput message {tag!r} at byte {offset}: {reason}")
        self.tag = tag
        self.offset = offset
        self.reason = reason


def decode(payload: bytes, *, in_stream: bool = False) -> Message:
    """Return the message in `payload` (without the XLogData header); raises ProtocolError.

    `in_stream` is true between Stream Start and Stream Stop, where changes carry an xid.
    """
    reader = MessageReader(payload)
    read = _READERS.get(reader.tag)
    if read is None:
        raise reader.error("the tag is unknown")
    message = read(reader, in_stream)
    if reader.left:
        raise reader.error(f"{reader.left} bytes are left over")
    return message


class MessageReader:
    """Exact, bounded reads from one message; `offset` is that of the next byte."""

    __slots__ = ("_data", "offset", "tag")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.tag = data[:1]
        self.offset = 1
        if not data:
            raise self.error("the message is empty")

    def error(self, reason: str) -> ProtocolError:
        """Return a ProtocolError at the current offset."""
        return ProtocolError(self.tag, self.offset, reason)

    def octets(self, length: int) -> bytes:
        """Read exactly `length` bytes."""
        if length < 0 or length > self.left:
            raise self.error(f"{length} bytes are announced, {self.left} are left")
        start = self.offset
        self.offset += length
        return self._data[start : self.offset]

    @property
    def left(self) -> int:
        """The number of bytes not read yet."""
        return len(self._data) - self.offset

    def byte(self) -> bytes:
        """Read one byte, as a letter."""
        return self.octets(1)

    def int8(self) -> int:
        """Read one byte, unsigned."""
        return self.octets(1)[0]

    def int16(self) -> int:
        """Read two bytes, signed."""
        return int(_I16.unpack(self.octets(2))[0])

    def int32(self) -> int:
        """Read four bytes, signed."""
        return int(_I32.unpack(self.octets(4))[0])

    def oid(self) -> Oid:
        """Read four bytes, unsigned."""
        return Oid(_U32.unpack(self.octets(4))[0])

    def xid(self) -> Xid:
        """Read four bytes, unsigned."""
        return Xid(_U32.unpack(self.octets(4))[0])

    def lsn(self) -> Lsn:
        """Read eight bytes, unsigned."""
        return Lsn(_U64.unpack(self.octets(8))[0])

    def time_us(self) -> int:
        """Read eight bytes since PostgreSQL's epoch; returns microseconds since the Unix epoch."""
        return of_number(int(_I64.unpack(self.octets(8))[0]))

    def string(self) -> str:
        """Read bytes up to a zero byte, and consume that."""
        end = self._data.find(b"\0", self.offset)
        if end < 0:
            raise self.error("a string has no end")
        text = self.text(end - self.offset)
        self.offset += 1
        return text

    def text(self, length: int) -> str:
        """Read `length` bytes of UTF-8."""
        start = self.offset
        try:
            return self.octets(length).decode("utf-8")
        except UnicodeDecodeError as exc:
            self.offset = start + exc.start
            raise self.error("the text is not UTF-8") from None

    def expect(self, value: int, what: str) -> None:
        """Read one byte that may have one value only."""
        given = self.int8()
        if given != value:
            raise self.error(f"{what} is {given}, not {value}")

    def flags(self, allowed: int, what: str) -> int:
        """Read one byte that may have the `allowed` bits only."""
        given = self.int8()
        if given & ~allowed:
            raise self.error(f"{what} {given} has unknown bits")
        return given


def _xid_in_stream(reader: MessageReader, in_stream: bool) -> Xid | None:
    return reader.xid() if in_stream else None


def _begin(reader: MessageReader, _in_stream: bool) -> Message:
    return Begin(reader.lsn(), reader.time_us(), reader.xid())


def _commit(reader: MessageReader, _in_stream: bool) -> Message:
    reader.expect(0, "the flags byte")
    return Commit(reader.lsn(), reader.lsn(), reader.time_us())


def _origin(reader: MessageReader, _in_stream: bool) -> Message:
    return Origin(reader.lsn(), reader.string())


def _namespace(reader: MessageReader) -> str:
    return reader.string() or "pg_catalog"


def _relation(reader: MessageReader, in_stream: bool) -> Message:
    xid = _xid_in_stream(reader, in_stream)
    oid, namespace, name = reader.oid(), _namespace(reader), reader.string()
    letter = reader.byte()
    try:
        identity = Identity(letter.decode("latin-1"))
    except ValueError:
        raise reader.error(f"the replica identity {letter!r} is unknown") from None
    columns = tuple(_relation_column(reader) for _ in range(_column_count(reader)))
    return Relation(oid, namespace, name, identity, columns, xid)


def _relation_column(reader: MessageReader) -> RelationColumn:
    identity = bool(reader.flags(1, "the column's flags"))
    name = reader.string()
    return RelationColumn(name, reader.oid(), reader.int32(), identity)


def _column_count(reader: MessageReader) -> int:
    count = reader.int16()
    if not 0 <= count <= COLUMNS_MAX:
        raise reader.error(f"{count} columns")
    return count


def _type(reader: MessageReader, in_stream: bool) -> Message:
    xid = _xid_in_stream(reader, in_stream)
    return TypeName(reader.oid(), _namespace(reader), reader.string(), xid)


def _tuple(reader: MessageReader) -> Values:
    return tuple(_value(reader) for _ in range(_column_count(reader)))


def _value(reader: MessageReader) -> Value:
    match reader.byte():
        case b"t":
            octets = reader.octets(reader.int32())
            try:
                return octets.decode("utf-8")
            except UnicodeDecodeError:
                return octets
        case b"n":
            return None
        case b"u":
            return UNCHANGED
        case b"b":
            raise reader.error("a value is binary; the stream is asked for text")
        case other:
            raise reader.error(f"the value's tag {other!r} is unknown")


def _old(reader: MessageReader) -> Values:
    values = _tuple(reader)
    if any(isinstance(value, Unchanged) for value in values):
        raise reader.error("an old image has an unchanged value")
    return values


def _insert(reader: MessageReader, in_stream: bool) -> Message:
    xid = _xid_in_stream(reader, in_stream)
    relation = reader.oid()
    _expect_new(reader, reader.byte())
    return Insert(relation, _tuple(reader), xid)


def _expect_new(reader: MessageReader, letter: bytes) -> None:
    if letter != b"N":
        raise reader.error(f"a new tuple begins with {letter!r}, not b'N'")


def _update(reader: MessageReader, in_stream: bool) -> Message:
    xid = _xid_in_stream(reader, in_stream)
    relation = reader.oid()
    letter = reader.byte()
    image, old = None, None
    if letter in (b"K", b"O"):
        image = OldImage(letter.decode())
        old = _old(reader)
        letter = reader.byte()
    _expect_new(reader, letter)
    return Update(relation, image, old, _tuple(reader), xid)


def _delete(reader: MessageReader, in_stream: bool) -> Message:
    xid = _xid_in_stream(reader, in_stream)
    relation = reader.oid()
    letter = reader.byte()
    if letter not in (b"K", b"O"):
        raise reader.error(f"an old tuple begins with {letter!r}, not b'K' or b'O'")
    return Delete(relation, OldImage(letter.decode()), _old(reader), xid)


def _truncate(reader: MessageReader, in_stream: bool) -> Message:
    xid = _xid_in_stream(reader, in_stream)
    count = reader.int32()
    if count < 1:
        raise reader.error(f"{count} relations are truncated")
    flags = reader.flags(3, "the options")
    octets = reader.octets(4 * count)
    return Truncate(tuple(Oid(o) for (o,) in _U32.iter_unpack(octets)), bool(flags & 1), bool(flags & 2), xid)


def _message(reader: MessageReader, in_stream: bool) -> Message:
    xid = _xid_in_stream(reader, in_stream)
    transactional = bool(reader.flags(1, "the flags"))
    lsn, prefix = reader.lsn(), reader.string()
    return LogicalMessage(transactional, lsn, prefix, reader.octets(reader.int32()), xid)


def _stream_start(reader: MessageReader, _in_stream: bool) -> Message:
    return StreamStart(reader.xid(), bool(reader.flags(1, "the first-segment byte")))


def _stream_stop(_reader: MessageReader, _in_stream: bool) -> Message:
    return StreamStop()


def _stream_commit(reader: MessageReader, _in_stream: bool) -> Message:
    xid = reader.xid()
    reader.expect(0, "the flags byte")
    return StreamCommit(xid, reader.lsn(), reader.lsn(), reader.time_us())


def _stream_abort(reader: MessageReader, _in_stream: bool) -> Message:
    xid, subxid = reader.xid(), reader.xid()
    if reader.left == 0:
        return StreamAbort(xid, subxid, None, None)
    return StreamAbort(xid, subxid, reader.lsn(), reader.time_us())


def _two_phase(reader: MessageReader, _in_stream: bool) -> Message:
    return TwoPhase(reader.tag, reader.octets(reader.left))


_READERS: Mapping[bytes, Callable[[MessageReader, bool], Message]] = MappingProxyType(
    {
        tag_of(Begin): _begin,
        tag_of(Commit): _commit,
        tag_of(Origin): _origin,
        tag_of(Relation): _relation,
        tag_of(TypeName): _type,
        tag_of(Insert): _insert,
        tag_of(Update): _update,
        tag_of(Delete): _delete,
        tag_of(Truncate): _truncate,
        tag_of(LogicalMessage): _message,
        tag_of(StreamStart): _stream_start,
        tag_of(StreamStop): _stream_stop,
        tag_of(StreamCommit): _stream_commit,
        tag_of(StreamAbort): _stream_abort,
        **{tag.octet: _two_phase for tag in TAGS if tag.message is TwoPhase},
    }
)
