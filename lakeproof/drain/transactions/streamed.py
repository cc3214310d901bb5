"""Transactions that the server streams while they are still open: their chunks wait here for commit or abort.

    S xid ─► messages, each with the xid of its (sub)transaction ─► E      any number of chunks, other messages in between
    A xid subxid                                                           the subtransaction was rolled back
    A xid xid                                                              the transaction was rolled back
    c xid                                                                  it is committed: a LargeTransaction

`buffer.py` cuts messages outside of chunks; `spool.py` divides memory and disk.

An open streamed transaction delays nothing: after a new connection the server sends it again in full, so any later commit's
position may be acknowledged meanwhile.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from lakeproof.drain.transactions.spill import SpillFiles
from lakeproof.drain.transactions.spool import Spool, SpoolMemory
from lakeproof.drain.transactions.units import Arrivals, LargeTransaction, broken
from lakeproof.lsn import Lsn
from lakeproof.names import Xid
from lakeproof.pgoutput.message_buffer import Ints, MessageBuffer
from lakeproof.pgoutput.messages import LogicalMessage, Origin, Relation, StreamAbort, StreamCommit, StreamStart
from lakeproof.pgoutput.tags import IN_CHUNK, tag_of

# Tag and xid; after them the flags of a logical message.
_XID_END = 5


class _Open:
    """One open transaction."""

    def __init__(self, memory: SpoolMemory, files: SpillFiles) -> None:
        self.spool = Spool(memory, files)
        self.arrivals = Arrivals.none()


class StreamedTransactions:
    """The open streamed transactions of one connection; they are decoded in parts of `part_bytes`."""

    def __init__(self, memory: SpoolMemory, files: SpillFiles, part_bytes: int) -> None:
        self._memory = memory
        self._files = files
        self._part_bytes = part_bytes
        self._open: dict[Xid, _Open] = {}
        self._current: Xid | None = None
        self._chunks = 0

    @property
    def in_chunk(self) -> bool:
        return self._current is not None

    @property
    def spools(self) -> list[Spool]:
        return [transaction.spool for transaction in self._open.values()]

    def start(self, start: StreamStart) -> None:
        if start.first_segment == (start.xid in self._open):
            raise broken(f"the chunks of transaction {start.xid} do not follow each other")
        if start.first_segment:
            self._open[start.xid] = _Open(self._memory, self._files)
        self._current = start.xid
        self._chunks += 1

    def extend(self, buffer: MessageBuffer, tags: bytes, after: Lsn) -> None:
        """Add messages of the chunk; `after` is the position of the newest commit received."""
        xid = self._current
        if not len(buffer):
            return
        if xid is None or tags.translate(None, IN_CHUNK):
            raise broken("a chunk of a streamed transaction has a message that can't be in one")
        transaction = self._open[xid]
        if tag_of(Relation) in tags:
            transaction.arrivals.add(transaction.spool.blocks, (after.value, self._chunks))
        if tag_of(LogicalMessage) in tags:
            _check_messages(buffer)
        owners = _owners(buffer, xid)
        begins = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(buffer)]
        for begin, stop in pairwise(begins):
            transaction.spool.add(Xid(int(owners[begin])), buffer[begin:stop])

    def stop(self) -> None:
        if self._current is None:
            raise broken("a chunk ends without a beginning")
        self._current = None

    def abort(self, abort: StreamAbort) -> None:
        """Drop a rolled-back transaction or subtransaction; for an unknown one there is nothing to drop."""
        transaction = self._open.get(abort.xid)
        if transaction is None:
            return
        if abort.subxid == abort.xid:
            transaction.spool.close()
            del self._open[abort.xid]
        else:
            transaction.spool.abort(abort.subxid)

    def commit(self, commit: StreamCommit, start: Lsn) -> LargeTransaction:
        """Return a committed transaction; the unit before it ended at `start`."""
        if commit.xid not in self._open:
            raise broken(f"transaction {commit.xid} is committed, and no chunk of it has come")
        transaction = self._open[commit.xid]
        committed = LargeTransaction(
            commit.xid, start, commit, transaction.spool, transaction.arrivals, part_bytes=self._part_bytes
        )
        del self._open[commit.xid]
        return committed

    def close(self) -> None:
        """Drop everything; the server will send it again."""
        for transaction in self._open.values():
            transaction.spool.close()
        self._open.clear()


def _owners(buffer: MessageBuffer, top: Xid) -> Ints:
    """Return each message's (sub)transaction; the origin, which has no xid, belongs to the whole transaction."""
    origins = buffer.where(tag_of(Origin))
    if np.any((buffer.end - buffer.start < _XID_END) & ~origins):
        raise broken("a message in a chunk is cut off")
    owners = buffer.uint32(buffer.start + 1)
    owners[origins] = top
    return owners


def _check_messages(buffer: MessageBuffer) -> None:
    """Raise SourceError if a logical message in a chunk is not part of its transaction."""
    for number in np.flatnonzero(buffer.where(tag_of(LogicalMessage))).tolist():
        if buffer.message(number)[_XID_END : _XID_END + 1] != b"\1":
            raise broken("a message in a chunk does not belong to its transaction")
