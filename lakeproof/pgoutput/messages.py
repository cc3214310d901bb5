"""Every message of pgoutput, protocols 1 to 4, as frozen values; those about two phases by their tag.

`decoder.py` reads them from bytes. The `xid` of a change is that of its (sub)transaction, and is present only inside the
chunks of a streamed transaction. Times are microseconds since the Unix epoch, UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from lakeproof.lsn import Lsn
from lakeproof.names import Oid, Xid
from lakeproof.schema import Identity


class Unchanged(Enum):
    """The mark of a TOAST value that an update did not touch and the server did not send."""

    UNCHANGED = "u"


UNCHANGED = Unchanged.UNCHANGED

# PostgreSQL's text, as bytes if it is not UTF-8 (a database in SQL_ASCII has no encoding).
Value: TypeAlias = str | bytes | Unchanged | None
Values: TypeAlias = tuple[Value, ...]


class OldImage(Enum):
    """The old image of a change: the identity's columns (all other columns are None and mean nothing), or the whole row."""

    KEY = "K"
    ROW = "O"


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction starts; its changes follow, up to its Commit."""

    final_lsn: Lsn
    commit_time_us: int
    xid: Xid


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction ends. Its commit record starts at `commit_lsn` and ends at `end_lsn`, which is its position."""

    commit_lsn: Lsn
    end_lsn: Lsn
    commit_time_us: int


@dataclass(frozen=True, slots=True)
class Origin:
    """The transaction came to the source by replication from elsewhere."""

    origin_lsn: Lsn
    name: str


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """One column of a Relation message; `identity` is its flag "part of the replica identity" (FULL flags all)."""

    name: str
    type_oid: Oid
    typmod: int
    identity: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table's columns, in force for its changes from here on. The server may repeat it: an equal one means nothing."""

    oid: Oid
    namespace: str
    name: str
    identity: Identity
    columns: tuple[RelationColumn, ...]
    xid: Xid | None = None


@dataclass(frozen=True, slots=True)
class TypeName:
    """The name of a type that is not built in; for a domain the name of its base type."""

    oid: Oid
    namespace: str
    name: str
    xid: Xid | None = None


@dataclass(frozen=True, slots=True)
class Insert:
    """A row is inserted."""

    relation: Oid
    new: Values
    xid: Xid | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """A row changes. `old` and `old_image` are None if the identity did not change."""

    relation: Oid
    old_image: OldImage | None
    old: Values | None
    new: Values
    xid: Xid | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """A row is deleted."""

    relation: Oid
    old_image: OldImage
    old: Values
    xid: Xid | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """All rows of each table are deleted, in the message's order."""

    relations: tuple[Oid, ...]
    cascade: bool
    restart_identity: bool
    xid: Xid | None = None


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """Bytes written with `pg_logical_emit_message`; a message that is not transactional stands between transactions."""

    transactional: bool
    lsn: Lsn
    prefix: str
    content: bytes
    xid: Xid | None = None


@dataclass(frozen=True, slots=True)
class StreamStart:
    """A chunk of an open transaction starts."""

    xid: Xid
    first_segment: bool


@dataclass(frozen=True, slots=True)
class StreamStop:
    """The chunk ends."""


@dataclass(frozen=True, slots=True)
class StreamCommit:
    """A streamed transaction ends."""

    xid: Xid
    commit_lsn: Lsn
    end_lsn: Lsn
    commit_time_us: int


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """A streamed (sub)transaction was rolled back; LSN and time are sent with `streaming = parallel` only."""

    xid: Xid
    subxid: Xid
    abort_lsn: Lsn | None
    abort_time_us: int | None


@dataclass(frozen=True, slots=True)
class TwoPhase:
    """A message of a transaction in two phases, by its `tag`: it is prepared, or a prepared one is committed or rolled back.

    What it says is not read: only a slot that was made for it sends one, and such a slot is refused.
    """

    tag: bytes
    content: bytes


Message: TypeAlias = (
    Begin
    | Commit
    | Origin
    | Relation
    | TypeName
    | Insert
    | Update
    | Delete
    | Truncate
    | LogicalMessage
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
    | TwoPhase
)
