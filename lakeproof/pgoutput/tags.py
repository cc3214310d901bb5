"""One table of pgoutput's messages: which tag stands for which class, and what the tag alone says about a message.

Every set of tags in the package is derived from this table, so that a new message is added here and read in `decoder.py`.
The formats are those of section 55.9, "Logical Replication Message Formats", of PostgreSQL 16's manual (53.9 in 14).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

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
    Update,
)


@dataclass(frozen=True, slots=True)
class Tag:
    """A message's first byte, and what follows from it.

    `in_chunk`: the message may stand between Stream Start and Stream Stop. `has_xid_in_chunk`: there its tag is followed by
    the xid of its (sub)transaction.
    """

    octet: bytes
    message: type[Message]
    in_chunk: bool = False
    has_xid_in_chunk: bool = False


TAGS = (
    Tag(b"B", Begin),
    Tag(b"C", Commit),
    Tag(b"O", Origin, in_chunk=True),
    Tag(b"R", Relation, in_chunk=True, has_xid_in_chunk=True),
    Tag(b"Y", TypeName, in_chunk=True, has_xid_in_chunk=True),
    Tag(b"I", Insert, in_chunk=True, has_xid_in_chunk=True),
    Tag(b"U", Update, in_chunk=True, has_xid_in_chunk=True),
    Tag(b"D", Delete, in_chunk=True, has_xid_in_chunk=True),
    Tag(b"T", Truncate, in_chunk=True, has_xid_in_chunk=True),
    Tag(b"M", LogicalMessage, in_chunk=True, has_xid_in_chunk=True),
    Tag(b"S", StreamStart),
    Tag(b"E", StreamStop),
    Tag(b"c", StreamCommit),
    Tag(b"A", StreamAbort),
    # Begin Prepare, Prepare, Commit Prepared, Rollback Prepared and Stream Prepare.
    *(Tag(octet, TwoPhase) for octet in (b"b", b"P", b"K", b"r", b"p")),
)

_OCTETS: Mapping[type[Message], bytes] = MappingProxyType({tag.message: tag.octet for tag in TAGS})


def tag_of(message: type[Message]) -> bytes:
    """Return the tag of a class of messages."""
    return _OCTETS[message]


def tags_of(*messages: type[Message]) -> bytes:
    """Return the tags of some classes of messages, in their order."""
    return b"".join(map(tag_of, messages))


def _tags_with(condition: Callable[[Tag], bool]) -> bytes:
    return b"".join(tag.octet for tag in TAGS if condition(tag))


# Messages with tuples, of one table each; and all that change data.
ROW_CHANGES = tags_of(Insert, Update, Delete)
CHANGES = ROW_CHANGES + tag_of(Truncate)
# What may stand in a chunk of a streamed transaction, and what of that has an xid behind its tag there: all but the origin.
IN_CHUNK = _tags_with(lambda tag: tag.in_chunk)
WITH_XID_IN_CHUNK = _tags_with(lambda tag: tag.has_xid_in_chunk)
# What frames ordinary transactions.
TRANSACTION_ENDS = tags_of(Begin, Commit)
# What is no part of an ordinary transaction: what begins and ends chunks, streamed transactions and prepared ones.
SPECIAL = _tags_with(lambda tag: not tag.in_chunk and tag.octet not in TRANSACTION_ENDS)
