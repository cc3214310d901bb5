"""One pgoutput message from its bytes, exactly.

Batches of messages belong to `batch.py`, whose oracle this is. Every read is bounded by the message, every count is checked
before it is used, and every byte is consumed; all else is a ProtocolError. Nothing is guessed.
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
    BeginPrepare,
    Commit,
    CommitPrepared,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldImage,
    Origin,
    Prepare,
    Relation,
    RelationColumn,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
    Truncate,
    TypeName,
    Unchanged,
    Update,
    Value,
    Values,
)
from lakeproof.schema import Identity

# From 2000-01-01, PostgreSQL's epoch, back to 1970-01-01.
POSTGRES_EPOCH_US = 946_684_800_000_000
TIME_US_MAX = (1 << 63) - 1
# `w`, start, end and send time of an XLogData frame come before the message.
HEADER_BYTES = 25
# Of a table; PostgreSQL's own limit (MaxHeapAttributeNumber).
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
    """The message in `payload` (without the XLogData header).

    `in_stream` says that it stands between Stream Start and Stream Stop, where changes carry an xid.
    Raises ProtocolError.
    """
    reader = Reader(payload)
    read = _READERS.get(reader.tag)
    if read is None:
        raise reader.error("the tag is unknown")
    message = read(reader, in_stream)
    if reader.left:
        raise reader.error(f"{reader.left} bytes are left over")
    return message


def message_of(frame: bytes) -> bytes:
    """The message in an XLogData frame; raises ProtocolError where the frame is none."""
    if len(frame) <= HEADER_BYTES or frame[:1] != b"w":
        raise ProtocolError(frame[:1], 0, "the frame is no XLogData with a message")
    return frame[HEADER_BYTES:]


class Reader:
    """Exact, bounded reads from one message; `at` is the offset of the next byte."""

    __slots__ = ("_data", "at", "tag")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.tag = data[:1]
        self.at = 1
        if not data:
            raise self.error("the message is empty")

    def error(self, reason: str) -> ProtocolError:
        """A ProtocolError at the current offset."""
        return ProtocolError(self.tag, self.at, reason)

    def octets(self, length: int) -> bytes:
        """Exactly `length` bytes."""
        if length < 0 or length > self.left:
            raise self.error(f"{length} bytes are announced, {self.left} are left")
        start = self.at
        self.at += length
        return self._data[start : self.at]

    @property
    def left(self) -> int:
        """How many bytes are not read yet."""
        return len(self._data) - self.at

    def byte(self) -> bytes:
        """One byte, as a letter."""
        return self.octets(1)

    def int8(self) -> int:
        """One byte, unsigned."""
        return self.octets(1)[0]

    def int16(self) -> int:
        """Two bytes, signed."""
        return int(_I16.unpack(self.octets(2))[0])

    def int32(self) -> int:
        """Four bytes, signed."""
        return int(_I32.unpack(self.octets(4))[0])

    def oid(self) -> Oid:
        """Four bytes, unsigned."""
        return Oid(_U32.unpack(self.octets(4))[0])

    def xid(self) -> Xid:
        """Four bytes, unsigned."""
        return Xid(_U32.unpack(self.octets(4))[0])

    def lsn(self) -> Lsn:
        """Eight bytes, unsigned."""
        return Lsn(_U64.unpack(self.octets(8))[0])

    def time_us(self) -> int:
        """Eight bytes since PostgreSQL's epoch; given since the Unix epoch."""
        time_us = int(_I64.unpack(self.octets(8))[0]) + POSTGRES_EPOCH_US
        if time_us > TIME_US_MAX:
            raise self.error("the time lies beyond all calendars")
        return time_us

    def string(self) -> str:
        """Bytes up to a zero byte, which is consumed."""
        end = self._data.find(b"\0", self.at)
        if end < 0:
            raise self.error("a string has no end")
        text = self.text(end - self.at)
        self.at += 1
        return text

    def text(self, length: int) -> str:
        """`length` bytes of UTF-8."""
        start = self.at
        try:
            return self.octets(length).decode("utf-8")
        except UnicodeDecodeError as exc:
            self.at = start + exc.start
            raise self.error("the text is not UTF-8") from None

    def expect(self, value: int, what: str) -> None:
        """One byte that has one value only."""
        found = self.int8()
        if found != value:
            raise self.error(f"{what} is {found}, not {value}")

    def flags(self, known: int, what: str) -> int:
        """One byte with known bits only."""
        found = self.int8()
        if found & ~known:
            raise self.error(f"{what} {found} has unknown bits")
        return found


def _xid_in_stream(reader: Reader, in_stream: bool) -> Xid | None:
    return reader.xid() if in_stream else None


def _begin(reader: Reader, _in_stream: bool) -> Message:
    return Begin(reader.lsn(), reader.time_us(), reader.xid())


def _commit(reader: Reader, _in_stream: bool) -> Message:
    reader.expect(0, "the flags byte")
    return Commit(reader.lsn(), reader.lsn(), reader.time_us())


def _origin(reader: Reader, _in_stream: bool) -> Message:
    return Origin(reader.lsn(), reader.string())


def _namespace(reader: Reader) -> str:
    return reader.string() or "pg_catalog"


def _relation(reader: Reader, in_stream: bool) -> Message:
    xid = _xid_in_stream(reader, in_stream)
    oid, namespace, name = reader.oid(), _namespace(reader), reader.string()
    letter = reader.byte()
    try:
        identity = Identity(letter.decode("latin-1"))
    except ValueError:
        raise reader.error(f"the replica identity {letter!r} is unknown") from None
    columns = tuple(_relation_column(reader) for _ in range(_column_count(reader)))
    return Relation(oid, namespace, name, identity, columns, xid)


def _relation_column(reader: Reader) -> RelationColumn:
    identity = bool(reader.flags(1, "the column's flags"))
    name = reader.string()
    return RelationColumn(name, reader.oid(), reader.int32(), identity)


def _column_count(reader: Reader) -> int:
    count = reader.int16()
    if not 0 <= count <= COLUMNS_MAX:
        raise reader.error(f"{count} columns")
    return count


def _type(reader: Reader, in_stream: bool) -> Message:
    xid = _xid_in_stream(reader, in_stream)
    return TypeName(reader.oid(), _namespace(reader), reader.string(), xid)


def _tuple(reader: Reader) -> Values:
    return tuple(_value(reader) for _ in range(_column_count(reader)))


def _value(reader: Reader) -> Value:
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


def _old(reader: Reader) -> Values:
    values = _tuple(reader)
    if any(isinstance(value, Unchanged) for value in values):
        raise reader.error("an old image has an unchanged value")
    return values


def _insert(reader: Reader, in_stream: bool) -> Message:
    xid = _xid_in_stream(reader, in_stream)
    relation = reader.oid()
    _expect_new(reader, reader.byte())
    return Insert(relation, _tuple(reader), xid)


def _expect_new(reader: Reader, letter: bytes) -> None:
    if letter != b"N":
        raise reader.error(f"a new tuple begins with {letter!r}, not b'N'")


def _update(reader: Reader, in_stream: bool) -> Message:
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


def _delete(reader: Reader, in_stream: bool) -> Message:
    xid = _xid_in_stream(reader, in_stream)
    relation = reader.oid()
    letter = reader.byte()
    if letter not in (b"K", b"O"):
        raise reader.error(f"an old tuple begins with {letter!r}, not b'K' or b'O'")
    return Delete(relation, OldImage(letter.decode()), _old(reader), xid)


def _truncate(reader: Reader, in_stream: bool) -> Message:
    xid = _xid_in_stream(reader, in_stream)
    count = reader.int32()
    if count < 1:
        raise reader.error(f"{count} relations are truncated")
    flags = reader.flags(3, "the options")
    octets = reader.octets(4 * count)
    return Truncate(tuple(Oid(o) for (o,) in _U32.iter_unpack(octets)), bool(flags & 1), bool(flags & 2), xid)


def _message(reader: Reader, in_stream: bool) -> Message:
    xid = _xid_in_stream(reader, in_stream)
    transactional = bool(reader.flags(1, "the flags"))
    lsn, prefix = reader.lsn(), reader.string()
    return LogicalMessage(transactional, lsn, prefix, reader.octets(reader.int32()), xid)


def _stream_start(reader: Reader, _in_stream: bool) -> Message:
    return StreamStart(reader.xid(), bool(reader.flags(1, "the first-segment byte")))


def _stream_stop(_reader: Reader, _in_stream: bool) -> Message:
    return StreamStop()


def _stream_commit(reader: Reader, _in_stream: bool) -> Message:
    xid = reader.xid()
    reader.expect(0, "the flags byte")
    return StreamCommit(xid, reader.lsn(), reader.lsn(), reader.time_us())


def _stream_abort(reader: Reader, _in_stream: bool) -> Message:
    xid, subxid = reader.xid(), reader.xid()
    if reader.left == 0:
        return StreamAbort(xid, subxid, None, None)
    return StreamAbort(xid, subxid, reader.lsn(), reader.time_us())


def _begin_prepare(reader: Reader, _in_stream: bool) -> Message:
    return BeginPrepare(reader.lsn(), reader.lsn(), reader.time_us(), reader.xid(), reader.string())


def _prepare(reader: Reader, _in_stream: bool) -> Message:
    reader.expect(0, "the flags byte")
    return Prepare(reader.lsn(), reader.lsn(), reader.time_us(), reader.xid(), reader.string())


def _commit_prepared(reader: Reader, _in_stream: bool) -> Message:
    reader.expect(0, "the flags byte")
    return CommitPrepared(reader.lsn(), reader.lsn(), reader.time_us(), reader.xid(), reader.string())


def _stream_prepare(reader: Reader, _in_stream: bool) -> Message:
    reader.expect(0, "the flags byte")
    return StreamPrepare(reader.lsn(), reader.lsn(), reader.time_us(), reader.xid(), reader.string())


def _rollback_prepared(reader: Reader, _in_stream: bool) -> Message:
    reader.expect(0, "the flags byte")
    ends = reader.lsn(), reader.lsn()
    times = reader.time_us(), reader.time_us()
    return RollbackPrepared(*ends, *times, reader.xid(), reader.string())


_READERS: Mapping[bytes, Callable[[Reader, bool], Message]] = MappingProxyType(
    {
        b"B": _begin,
        b"C": _commit,
        b"O": _origin,
        b"R": _relation,
        b"Y": _type,
        b"I": _insert,
        b"U": _update,
        b"D": _delete,
        b"T": _truncate,
        b"M": _message,
        b"S": _stream_start,
        b"E": _stream_stop,
        b"c": _stream_commit,
        b"A": _stream_abort,
        b"b": _begin_prepare,
        b"P": _prepare,
        b"K": _commit_prepared,
        b"r": _rollback_prepared,
        b"p": _stream_prepare,
    }
)
