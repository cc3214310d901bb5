"""Cutting the stream's messages into units that end at a position.

Receiving messages belongs to `lakeproof.postgres.replication_stream`, decoding them to `lakeproof.pgoutput`; here only
their tags are looked at, and the few messages that begin, end or drop a transaction. Chunks of streamed transactions go
to `streams.py`.

Invariant whole-transactions: what `take` gives holds whole transactions in the order of their commits, and messages that
belong to none, each at its own place among them. Invariant bounded: small complete transactions are given away at
`UNIT_BYTES`; an open one beyond that, and every streamed one, waits in a spool. All spools together hold `drain.spill_bytes`
in memory: beyond that the largest goes to disk. A large transaction is given away by itself, to be decoded in parts.

A message that belongs to no transaction is complete as it comes: its LSN is the end of its record, a position like a
commit's (nothing before it comes again, everything behind it does).
"""

from __future__ import annotations

import re

from lakeproof.drain.transactions.spill import SpillFiles
from lakeproof.drain.transactions.spool import Spool, SpoolMemory
from lakeproof.drain.transactions.streamed import StreamedTransactions
from lakeproof.drain.transactions.units import POSITION_END, UNIT_BYTES, LargeTransaction, Unit
from lakeproof.errors import InvariantError, SourceError
from lakeproof.lsn import Lsn
from lakeproof.names import Xid
from lakeproof.pgoutput.decoder import ProtocolError, decode
from lakeproof.pgoutput.message_buffer import Wire
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

# What is no part of an ordinary transaction: streamed ones, and prepared ones.
_SPECIAL = re.compile(rb"[SEcAbPKrp]")
# An ordinary large transaction has no subtransactions that we hear of.
_WHOLE = Xid(0)


class TransactionBuffer:
    """Messages between the stream and the decoder, which begin after the position `start`.

    `spill_bytes`, `spill_files` and `spill_bytes_max` are the limits of that name.
    """

    def __init__(
        self, spill_bytes: int, spill_files: int = 64, spill_bytes_max: int = 0, *, start: Lsn = Lsn.ZERO
    ) -> None:
        self._large_from = min(UNIT_BYTES, spill_bytes)
        self._memory = SpoolMemory(spill_bytes)
        self._files = SpillFiles(spill_files, spill_bytes_max)
        self._streams = StreamedTransactions(self._memory, self._files)
        self._units: list[Unit | LargeTransaction] = []
        self._ready: list[Wire] = []
        self._ready_messages = 0
        self._ready_bytes = 0
        self._ready_commits = 0
        self._open: list[Wire] = []
        self._open_bytes = 0
        self._begin: Begin | None = None
        self._large: Spool | None = None
        self._newest = start  # the position that was last complete
        self._given = start  # the end of the last unit

    @property
    def settled(self) -> bool:
        """Whether nothing waits that would be lost by acknowledging a keepalive: streamed transactions come again."""
        return not (self._units or self._ready or self.transaction_open)

    @property
    def transaction_open(self) -> bool:
        """Whether a begin has come whose commit has not, or a chunk has begun."""
        return bool(self._open) or self._large is not None or self._streams.in_chunk

    @property
    def streamed_open(self) -> int:
        """How many streamed transactions are open."""
        return len(self._streams)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of messages of the transactions that have not ended."""
        large = 0 if self._large is None else self._large.size
        return self._open_bytes + large + sum(spool.size for spool in self._streams.spools)

    @property
    def crowded(self) -> bool:
        """Whether what has been given away should be dealt with before more comes: it takes disk that will be free then."""
        return self._files.crowded

    @property
    def complete(self) -> bool:
        """Whether something waits that has its position."""
        return bool(self._units or self._ready)

    @property
    def complete_end(self) -> Lsn | None:
        """The position of what was last complete, as far as it is not in a unit yet."""
        return self._newest if self._ready else None

    @property
    def complete_bytes(self) -> int:
        """Bytes of what is complete and small, and not in a unit yet."""
        return self._ready_bytes

    @property
    def complete_others(self) -> int:
        """Their messages but begins and commits."""
        return self._ready_messages - 2 * self._ready_commits

    def feed(self, wire: Wire) -> None:
        """Take in what the stream brought, in its order.

        Raises SourceError for what can't stand there, LakeError where a waiting transaction finds no room on disk,
        SpillLimitError where it would take more of it than it may.
        """
        tags = wire.tags.tobytes()
        at = 0
        while at < len(tags):
            if self._streams.in_chunk:
                stop = tags.find(b"E", at)
                stop = len(tags) if stop < 0 else stop
                self._streams.extend(wire[at:stop], tags[at:stop], self._newest)
            else:
                special = _SPECIAL.search(tags, at)
                stop = special.start() if special else len(tags)
                if stop > at:
                    self._ordinary(wire[at:stop], tags[at:stop])
            if stop < len(tags):
                self._special(wire.message(stop))
            at = stop + 1
        if self._ready_bytes >= UNIT_BYTES:
            self._cut()
        self._limit_memory()

    def advance(self, position: Lsn) -> None:
        """The server has nothing to send up to here: a unit without messages. Only where nothing waits (`settled`)."""
        if not self.settled:
            raise InvariantError("replication stream", "its position is passed over what waits", "report this")
        self._newest = position
        self._append(Unit([], 0, self._given, position, 0))

    def take(self, *, everything: bool) -> list[Unit | LargeTransaction]:
        """Give away the units that are full; with `everything` also the last complete transactions."""
        if everything:
            self._cut()
        units, self._units = self._units, []
        return units

    def close(self) -> None:
        """Drop what is left; the server will send it again."""
        for unit in self._units:
            if isinstance(unit, LargeTransaction):
                unit.close()
        if self._large is not None:
            self._large.close()
        self._streams.close()
        self._units, self._ready, self._open, self._large = [], [], [], None
        self._ready_messages = self._ready_bytes = self._ready_commits = self._open_bytes = 0

    def _ordinary(self, wire: Wire, tags: bytes) -> None:
        """Messages outside of chunks."""
        if self._large is not None:
            end = tags.find(b"C")
            if end >= 0:
                self._end_large(wire[:end], wire.message(end))
                wire, tags = wire[end + 1 :], tags[end + 1 :]
        last = tags.rfind(b"C") + 1
        if last or not self.transaction_open:
            rest = tags[last:]
            last += len(rest) - len(rest.lstrip(b"M"))
        if last:
            complete = wire[:last]
            # Before anything changes: what is complete must never be without its position.
            newest = _end_of(wire.message(last - 1))
            self._ready_messages += sum(map(len, self._open)) + last
            self._ready_bytes += self._open_bytes + complete.size
            self._ready_commits += tags.count(b"C", 0, last)
            self._ready += [*self._open, complete.kept()]
            self._open, self._open_bytes = [], 0
            self._newest = newest
            wire = wire[last:]
        if len(wire):
            self._extend_open(wire)

    def _special(self, octets: bytes) -> None:
        """A message about a streamed transaction."""
        message = _decoded(octets)
        if self.transaction_open and not (self._streams.in_chunk and isinstance(message, StreamStop)):
            raise _broken("a streamed transaction's message stands inside another transaction")
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

    def _extend_open(self, wire: Wire) -> None:
        if self._large is not None:
            self._large.add(_WHOLE, wire)
            return
        self._open.append(wire.kept())
        self._open_bytes += wire.size
        if self._open_bytes >= self._large_from:
            begin = _decoded(self._open[0].message(0))
            if not isinstance(begin, Begin):
                raise _broken("a transaction did not begin with its begin")
            self._begin, self._large = begin, Spool(self._memory, self._files)
            self._large.add(_WHOLE, self._open[0][1:])
            for further in self._open[1:]:
                self._large.add(_WHOLE, further)
            self._open, self._open_bytes = [], 0

    def _end_large(self, rest: Wire, last: bytes) -> None:
        begin, spool, commit = self._begin, self._large, _commit_of(last)
        if spool is None or begin is None:
            raise _broken("a large transaction has no begin")
        if (begin.final_lsn, begin.commit_time_us) != (commit.commit_lsn, commit.commit_time_us):
            raise _broken("a commit does not agree with its begin")
        spool.add(_WHOLE, rest)
        self._cut()
        self._append(LargeTransaction(begin.xid, self._given, commit, spool))
        self._begin, self._large, self._newest = None, None, commit.end_lsn

    def _cut(self) -> None:
        if self._ready:
            self._append(Unit(self._ready, self._ready_bytes, self._given, self._newest, self.complete_others))
            self._ready, self._ready_messages, self._ready_bytes, self._ready_commits = [], 0, 0, 0

    def _append(self, unit: Unit | LargeTransaction) -> None:
        self._units.append(unit)
        self._given = unit.end_lsn

    def _limit_memory(self) -> None:
        """The largest first: one file for most of the bytes. What waits for the decoder already is left alone."""
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
        raise _broken(str(error)) from None


def _commit_of(octets: bytes) -> Commit:
    message = _decoded(octets)
    if not isinstance(message, Commit):
        raise _broken("a transaction does not end with its commit")
    return message


def _end_of(octets: bytes) -> Lsn:
    """The position at which a commit, or a message of no transaction, ends."""
    message = _decoded(octets)
    end = (
        message.lsn if isinstance(message, LogicalMessage) else message.end_lsn if isinstance(message, Commit) else None
    )
    if end is None or not 0 < end.value < POSITION_END:
        raise _broken("a transaction does not end with a commit that has a position")
    return end


def _broken(reason: str) -> SourceError:
    return SourceError("replication stream", reason, "nothing was acknowledged; connect again, and report this")
