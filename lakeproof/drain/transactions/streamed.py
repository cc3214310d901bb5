"""Transactions that the server streams while they are still open: their chunks wait here for commit or abort.

    S xid ─► messages, each with the xid of its (sub)transaction ─► E        any number of chunks, others between them
    A xid subxid                                                           the subtransaction never happened
    A xid xid                                                              none of it happened
    c xid                                                                  it is committed: a LargeTransaction

Cutting what belongs to no chunk is `buffer.py`'s; what memory and disk do is `spool.py`'s.

An open streamed transaction holds nothing up: what was received of it is sent again in full after a new connection, so that
any later commit's position may be acknowledged meanwhile.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from lakeproof.drain.transactions.spill import SpillFiles
from lakeproof.drain.transactions.spool import Spool, SpoolMemory
from lakeproof.drain.transactions.units import Arrivals, LargeTransaction
from lakeproof.errors import SourceError
from lakeproof.lsn import Lsn
from lakeproof.names import Xid
from lakeproof.pgoutput.message_buffer import Ints, Wire
from lakeproof.pgoutput.messages import StreamAbort, StreamCommit, StreamStart

# What may stand in a chunk.
_IN_CHUNK = b"ORYIUDTM"
# Tag and xid; after them the flags of a logical message.
_XID_END = 5


class _Open:
    """One open transaction."""

    def __init__(self, memory: SpoolMemory, files: SpillFiles) -> None:
        self.spool = Spool(memory, files)
        self.arrivals = Arrivals.none()


class StreamedTransactions:
    """The open streamed transactions of one connection."""

    def __init__(self, memory: SpoolMemory, files: SpillFiles) -> None:
        self._memory = memory
        self._files = files
        self._open: dict[Xid, _Open] = {}
        self._current: Xid | None = None
        self._chunks = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def in_chunk(self) -> bool:
        """Whether a chunk has begun and not ended."""
        return self._current is not None

    @property
    def spools(self) -> list[Spool]:
        """Those of all open transactions."""
        return [transaction.spool for transaction in self._open.values()]

    def start(self, start: StreamStart) -> None:
        """A chunk begins."""
        if start.first_segment == (start.xid in self._open):
            raise _broken(f"the chunks of transaction {start.xid} do not follow each other")
        if start.first_segment:
            self._open[start.xid] = _Open(self._memory, self._files)
        self._current = start.xid
        self._chunks += 1

    def extend(self, wire: Wire, tags: bytes, after: Lsn) -> None:
        """Messages of the chunk; `after` is the position of the newest commit that was received."""
        xid = self._current
        if not len(wire):
            return
        if xid is None or tags.translate(None, _IN_CHUNK):
            raise _broken("a message stands in a chunk of a streamed transaction that can't")
        transaction = self._open[xid]
        if b"R" in tags:
            transaction.arrivals.add(transaction.spool.blocks, (after.value, self._chunks))
        if b"M" in tags:
            _check_messages(wire)
        owners = _owners(wire, xid)
        begins = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(wire)]
        for begin, stop in pairwise(begins):
            transaction.spool.add(Xid(int(owners[begin])), wire[begin:stop])

    def stop(self) -> None:
        """The chunk ends."""
        if self._current is None:
            raise _broken("a chunk ends that did not begin")
        self._current = None

    def abort(self, abort: StreamAbort) -> None:
        """A transaction, or one of its subtransactions, never happened; of one not heard of there is nothing to drop."""
        transaction = self._open.get(abort.xid)
        if transaction is None:
            return
        if abort.subxid == abort.xid:
            transaction.spool.close()
            del self._open[abort.xid]
        else:
            transaction.spool.abort(abort.subxid)

    def commit(self, commit: StreamCommit, start: Lsn) -> LargeTransaction:
        """A transaction is committed; the unit before it ended at `start`."""
        if commit.xid not in self._open:
            raise _broken(f"transaction {commit.xid} is committed, and no chunk of it has come")
        transaction = self._open[commit.xid]
        committed = LargeTransaction(commit.xid, start, commit, transaction.spool, transaction.arrivals)
        del self._open[commit.xid]
        return committed

    def close(self) -> None:
        """Drop everything; the server will send it again."""
        for transaction in self._open.values():
            transaction.spool.close()
        self._open.clear()


def _owners(wire: Wire, top: Xid) -> Ints:
    """The (sub)transaction of each message in a chunk; the origin, which has no xid, is the whole transaction's."""
    origins = wire.where(b"O")
    if np.any((wire.end - wire.at < _XID_END) & ~origins):
        raise _broken("a message in a chunk is cut off")
    owners = wire.uint32(wire.at + 1)
    owners[origins] = top
    return owners


def _check_messages(wire: Wire) -> None:
    """A logical message in a chunk is part of its transaction."""
    for number in np.flatnonzero(wire.where(b"M")).tolist():
        if wire.message(number)[_XID_END : _XID_END + 1] != b"\1":
            raise _broken("a message in a chunk does not belong to its transaction")


def _broken(reason: str) -> SourceError:
    return SourceError("replication stream", reason, "nothing was acknowledged; connect again, and report this")
