"""Messages of pgoutput to bytes: the inverse of the decoder, for tests and benchmarks.

Written from the protocol's table, not from the decoder. It can write what no server would send; checking is not its task.
"""

from __future__ import annotations

import struct

from lakeproof.lsn import Lsn
from lakeproof.names import Xid
from lakeproof.pgoutput.messages import (
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Relation,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    TwoPhase,
    TypeName,
    Unchanged,
    Update,
    Values,
)

_EPOCH_US = 946_684_800_000_000


def frame(payload: bytes, lsn: int = 0) -> bytes:
    """The message as an XLogData frame."""
    return struct.pack(">cQQq", b"w", lsn, lsn, 0) + payload


def frames(*messages: Message) -> list[bytes]:
    """Messages as XLogData frames."""
    return [frame(encode(message)) for message in messages]


def encode(message: Message) -> bytes:
    """The bytes of a message, without the frame's header."""
    match message:
        case Begin(lsn, time, xid):
            return b"B" + _lsns(lsn) + _times(time) + _u32(xid)
        case Commit(lsn, end, time):
            return b"C\0" + _lsns(lsn, end) + _times(time)
        case Origin(lsn, name):
            return b"O" + _lsns(lsn) + _string(name)
        case Relation():
            return _relation(message)
        case TypeName(oid, namespace, name, xid):
            return b"Y" + _xid(xid) + _u32(oid) + _string(_namespace(namespace)) + _string(name)
        case Insert(oid, new, xid):
            return b"I" + _xid(xid) + _u32(oid) + b"N" + tuple_data(new)
        case Update():
            return _update(message)
        case Delete(oid, image, old, xid):
            return b"D" + _xid(xid) + _u32(oid) + image.value.encode() + tuple_data(old)
        case Truncate(oids, cascade, restart, xid):
            flags = bytes([cascade | (restart << 1)])
            return b"T" + _xid(xid) + struct.pack(">i", len(oids)) + flags + b"".join(map(_u32, oids))
        case LogicalMessage(transactional, lsn, prefix, content, xid):
            head = b"M" + _xid(xid) + bytes([transactional]) + _lsns(lsn) + _string(prefix)
            return head + struct.pack(">i", len(content)) + content
        case _:
            return _rare(message)


def _rare(message: Message) -> bytes:
    match message:
        case StreamStart(xid, first):
            return b"S" + _u32(xid) + bytes([first])
        case StreamStop():
            return b"E"
        case StreamCommit(xid, lsn, end, time):
            return b"c" + _u32(xid) + b"\0" + _lsns(lsn, end) + _times(time)
        case StreamAbort(xid, subxid, lsn, time):
            tail = b"" if lsn is None or time is None else _lsns(lsn) + _times(time)
            return b"A" + _u32(xid) + _u32(subxid) + tail
        case TwoPhase(tag, content):
            return tag + content
        case _:
            raise TypeError(type(message).__name__)


def tuple_data(values: Values) -> bytes:
    """TupleData."""
    cells = []
    for value in values:
        if value is None:
            cells.append(b"n")
        elif isinstance(value, Unchanged):
            cells.append(b"u")
        else:
            octets = value if isinstance(value, bytes) else value.encode()
            cells.append(b"t" + struct.pack(">i", len(octets)) + octets)
    return struct.pack(">h", len(values)) + b"".join(cells)


def _relation(relation: Relation) -> bytes:
    head = b"R" + _xid(relation.xid) + _u32(relation.oid) + _string(_namespace(relation.namespace))
    columns = [
        bytes([c.identity]) + _string(c.name) + _u32(c.type_oid) + struct.pack(">i", c.typmod) for c in relation.columns
    ]
    letter = relation.identity.value.encode()
    return head + _string(relation.name) + letter + struct.pack(">h", len(columns)) + b"".join(columns)


def _update(update: Update) -> bytes:
    old = b""
    if update.old is not None and update.old_image is not None:
        old = update.old_image.value.encode() + tuple_data(update.old)
    return b"U" + _xid(update.xid) + _u32(update.relation) + old + b"N" + tuple_data(update.new)


def _namespace(name: str) -> str:
    return "" if name == "pg_catalog" else name


def _xid(xid: Xid | None) -> bytes:
    return b"" if xid is None else _u32(xid)


def _u32(value: int) -> bytes:
    return struct.pack(">I", value)


def _lsns(*lsns: Lsn) -> bytes:
    return b"".join(struct.pack(">Q", lsn.value) for lsn in lsns)


def _times(*times_us: int) -> bytes:
    return b"".join(struct.pack(">q", time - _EPOCH_US) for time in times_us)


def _string(text: str) -> bytes:
    return text.encode() + b"\0"
