"""Cuts the stream's messages into units that end at a position.

Nothing is decoded here: only tags, and the few messages that begin, end or abort a transaction, are read. Chunks of
streamed transactions go to `streamed.py`.

Invariant whole-transactions: the units that `take` returns hold whole transactions in the order of their commits, and
messages outside transactions, each at its own place among them. Invariant bounded: small complete transactions are handed
out at `unit_bytes`; an open one beyond that, and every streamed one, waits in a spool. All spools together hold
`drain.spill_bytes` in memory: beyond that the largest goes to disk. A large transaction is handed out by itself, to be
decoded in parts.

A message outside transactions is complete when it arrives: its LSN is the end of its record, a position like a commit's
(nothing before it is sent again, everything after it is).
"""

from __future__ import annotations

import re

from lakeproof.drain.transactions.spill import SpillFiles
from lakeproof.drain.transactions.spool import Spool, SpoolMemory
from lakeproof.drain.transactions.streamed import StreamedTransactions
from lakeproof.drain.transactions.units import POSITION_END, UNIT_BYTES, DecodeUnit, LargeTransaction, broken
from lakeproof.errors import InvariantError, SourceError
from lakeproof.lsn import Lsn
from lakeproof.names import Xid
from lakeproof.pgoutput.decoder import ProtocolError, decode
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.pgoutput.messages import (
    Begin,
    Commit,
    LogicalMessage,
    Message,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
)
from lakeproof.pgoutput.tags import SPECIAL, tag_of

_SPECIAL = re.compile(b"[" + SPECIAL + b"]")
_COMMIT, _MESSAGE, _STREAM_STOP = map(tag_of, (Commit, LogicalMessage, StreamStop))
# The stream does not name the subtransactions of an ordinary large transaction.
_WHOLE = Xid(0)


class TransactionBuffer:
    """The messages between the stream and the decoder, from the position `start` on.

    `spill_bytes`, `spill_files` and `spill_bytes_max` are the configured limits of that name; a unit has `unit_bytes`.
    """

    def __init__(
        self,
        spill_bytes: int,
        spill_files: int = 64,
        spill_bytes_max: int = 0,
        *,
        start: Lsn = Lsn.ZERO,
        unit_bytes: int = UNIT_BYTES,
    ) -> None:
        self._unit_bytes = unit_bytes
        self._large_from = min(unit_bytes, spill_bytes)
        self._memory = SpoolMemory(spill_bytes)
        self._files = SpillFiles(spill_files, spill_bytes_max)
        self._streams = StreamedTransactions(self._memory, self._files, unit_bytes)
        self._units: list[DecodeUnit | LargeTransaction] = []
        self._ready: list[MessageBuffer] = []
        self._ready_messages = 0
        self._ready_bytes = 0
        self._ready_commits = 0
        self._open: list[MessageBuffer] = []
        self._open_bytes = 0
        self._begin: Begin | None = None
        self._large: Spool | None = None
        self._newest = start  # the last complete position
        self._given = start  # the end of the last unit

    @property
    def nothing_waits(self) -> bool:
        """True if acknowledging a keepalive would lose nothing: open streamed transactions are sent again."""
        return not (self._units or self._ready or self.transaction_open)

    @property
    def transaction_open(self) -> bool:
        """True between a begin and its commit, and inside a chunk."""
        return bool(self._open) or self._large is not None or self._streams.in_chunk

    @property
    def waiting_bytes(self) -> int:
        """The bytes of the messages of unfinished transactions."""
        large = 0 if self._large is None else self._large.size
        return self._open_bytes + large + sum(spool.size for spool in self._streams.spools)

    @property
    def crowded(self) -> bool:
        """True if handed-out units should be processed before more is read: that will free the disk they take."""
        return self._files.crowded

    @property
    def newest(self) -> Lsn:
        """The last complete position, in a unit or not."""
        return self._newest

    @property
    def complete(self) -> bool:
        """True if something complete waits."""
        return bool(self._units or self._ready)

    @property
    def complete_end(self) -> Lsn | None:
        """The last complete position, None if everything complete is in a unit."""
        return self._newest if self._ready else None

    @property
    def complete_bytes(self) -> int:
        """The bytes of small complete transactions that are in no unit yet."""
        return self._ready_bytes

    @property
    def complete_change_count(self) -> int:
        """Their messages except begins and commits."""
        return self._ready_messages - 2 * self._ready_commits

    def feed(self, buffer: MessageBuffer) -> None:
        """Add what the stream brought, in its order.

        Raises SourceError for a message that can't come here, LakeError if the disk has no room for a waiting transaction,
        SpillLimitError if it would take more than its limit.
        """
        tags = buffer.tags.tobytes()
        passed = 0
        while passed < len(tags):
            if self._streams.in_chunk:
                stop = tags.find(_STREAM_STOP, passed)
                stop = len(tags) if stop < 0 else stop
                self._streams.extend(buffer[passed:stop], tags[passed:stop], self._newest)
            else:
                special = _SPECIAL.search(tags, passed)
                stop = special.start() if special else len(tags)
                if stop > passed:
                    self._ordinary(buffer[passed:stop], tags[passed:stop])
            if stop < len(tags):
                self._special(buffer.message(stop))
            passed = stop + 1
        if self._ready_bytes >= self._unit_bytes:
            self._cut()
        self._limit_memory()

    def advance(self, position: Lsn) -> None:
        """Add a unit without messages: the server has nothing to send up to `position`. Requires `nothing_waits`."""
        if not self.nothing_waits:
            raise InvariantError("replication stream", "its position would skip messages that wait", "report this")
        self._newest = position
        self._append(DecodeUnit([], 0, self._given, position, 0))

    def take(self, *, everything: bool) -> list[DecodeUnit | LargeTransaction]:
        """Hand out the full units; with `everything` also the last complete transactions."""
        if everything:
            self._cut()
        units, self._units = self._units, []
        return units

    def close(self) -> None:
        """Drop the rest; the server will send it again."""
        for unit in self._units:
            if isinstance(unit, LargeTransaction):
                unit.close()
        if self._large is not None:
            self._large.close()
        self._streams.close()
        self._units, self._ready, self._open, self._large = [], [], [], None
        self._ready_messages = self._ready_bytes = self._ready_commits = self._open_bytes = 0

    def _ordinary(self, buffer: MessageBuffer, tags: bytes) -> None:
        """Add messages outside of chunks."""
        if self._large is not None:
            end = tags.find(_COMMIT)
            if end >= 0:
                self._end_large(buffer[:end], buffer.message(end))
                buffer, tags = buffer[end + 1 :], tags[end + 1 :]
        last = tags.rfind(_COMMIT) + 1
        if last or not self.transaction_open:
            rest = tags[last:]
            last += len(rest) - len(rest.lstrip(_MESSAGE))
        if last:
            complete = buffer[:last]
            # Before anything changes: complete messages must never be without their position.
            newest = _end_of(buffer.message(last - 1))
            self._ready_messages += sum(map(len, self._open)) + last
            self._ready_bytes += self._open_bytes + complete.size
            self._ready_commits += tags.count(_COMMIT, 0, last)
            self._ready += [*self._open, complete.kept()]
            self._open, self._open_bytes = [], 0
            self._newest = newest
            buffer = buffer[last:]
        if len(buffer):
            self._extend_open(buffer)

    def _special(self, octets: bytes) -> None:
        """Handle a message about a streamed transaction."""
        message = _decoded(octets)
        if self.transaction_open and not (self._streams.in_chunk and isinstance(message, StreamStop)):
            raise broken("a streamed transaction's message is inside another transaction")
        match message:
            case StreamStart():
                self._streams.start(message)
            case StreamStop():
                self._streams.stop()
            case StreamAbort():
                self._streams.abort(message)
            case StreamCommit():
                self._cut()
                self._append(self._streams.commit(message, self._given))
                self._newest = message.end_lsn
            case _:
                raise SourceError(
                    "replication stream",
                    "the slot sends prepared transactions before their COMMIT PREPARED",
                    "name another slot in the configuration, or drop this one if nobody needs it",
                )

    def _extend_open(self, buffer: MessageBuffer) -> None:
        if self._large is not None:
            self._large.add(_WHOLE, buffer)
            return
        self._open.append(buffer.kept())
        self._open_bytes += buffer.size
        if self._open_bytes >= self._large_from:
            begin = _decoded(self._open[0].message(0))
            if not isinstance(begin, Begin):
                raise broken("a transaction did not begin with its begin")
            self._begin, self._large = begin, Spool(self._memory, self._files)
            self._large.add(_WHOLE, self._open[0][1:])
            for further in self._open[1:]:
                self._large.add(_WHOLE, further)
            self._open, self._open_bytes = [], 0

    def _end_large(self, rest: MessageBuffer, last: bytes) -> None:
        begin, spool, commit = self._begin, self._large, _commit_of(last)
        if spool is None or begin is None:
            raise broken("a large transaction has no begin")
        if (begin.final_lsn, begin.commit_time_us) != (commit.commit_lsn, commit.commit_time_us):
            raise broken("a commit does not agree with its begin")
        spool.add(_WHOLE, rest)
        self._cut()
        self._append(LargeTransaction(begin.xid, self._given, commit, spool, part_bytes=self._unit_bytes))
        self._begin, self._large, self._newest = None, None, commit.end_lsn

    def _cut(self) -> None:
        if self._ready:
            self._append(
                DecodeUnit(self._ready, self._ready_bytes, self._given, self._newest, self.complete_change_count)
            )
            self._ready, self._ready_messages, self._ready_bytes, self._ready_commits = [], 0, 0, 0

    def _append(self, unit: DecodeUnit | LargeTransaction) -> None:
        self._units.append(unit)
        self._given = unit.end_lsn

    def _limit_memory(self) -> None:
        """Spill the largest first: one file for most of the bytes. What already waits for the decoder is left alone."""
        while self._memory.exceeded:
            spools = [*self._streams.spools, *([self._large] if self._large is not None else [])]
            largest = max(spools, key=lambda spool: spool.memory_bytes, default=None)
            if largest is None or not largest.memory_bytes:
                return
            largest.spill()


def _decoded(octets: bytes) -> Message:
    try:
        return decode(octets)
    except ProtocolError as error:
        raise broken(str(error)) from None


def _commit_of(octets: bytes) -> Commit:
    message = _decoded(octets)
    if not isinstance(message, Commit):
        raise broken("a transaction does not end with its commit")
    return message


def _end_of(octets: bytes) -> Lsn:
    """Return the end of a commit, or of a message outside transactions."""
    message = _decoded(octets)
    end = (
        message.lsn if isinstance(message, LogicalMessage) else message.end_lsn if isinstance(message, Commit) else None
    )
    if end is None or not 0 < end.value < POSITION_END:
        raise broken("a transaction does not end with a commit that has a position")
    return end
