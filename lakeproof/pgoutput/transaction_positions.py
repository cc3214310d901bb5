"""Where each message of a batch stands: its transaction's position, xid and commit time, and its seq.

What the changes carry belongs to `tuples.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lakeproof.lsn import Lsn
from lakeproof.names import Xid
from lakeproof.pgoutput.decoder import POSTGRES_EPOCH_US, TIME_US_MAX
from lakeproof.pgoutput.message_buffer import Flags, Ints, Wire
from lakeproof.pgoutput.rows import TransactionInfo

_BEGIN_BYTES = 21
_COMMIT_BYTES = 26


@dataclass(frozen=True, slots=True)
class Places:
    """One entry per message: `seq` is that of its (first) change, or of the next one where it is no change.

    What stands between transactions has `inside` False and no meaning elsewhere. `begins` are the indices of the messages
    with which transactions begin, `number` is the ordinal of a message's transaction.
    """

    lsn: Ints
    xid: Ints
    time_us: Ints
    inside: Flags
    number: Ints
    begins: Ints

    def seq(self, weights: Ints, first_seq: int) -> tuple[Ints, int]:
        """The seq of each message where it takes `weights[i]` of them, and the one after the last."""
        through = np.cumsum(weights)
        before = through - weights
        if not self.begins.size:
            return before, first_seq
        seq = before - before[self.begins][self.number] + first_seq
        return seq, int(seq[-1] + weights[-1])

    def transaction_of(self, index: int) -> TransactionInfo:
        """The transaction of one message."""
        return TransactionInfo(self.lsn_of(index), Xid(int(self.xid[index])), int(self.time_us[index]))

    def lsn_of(self, index: int) -> Lsn:
        """The position of one message."""
        return Lsn(int(self.lsn[index]))


def whole_transactions(wire: Wire) -> Places:
    """The places in a batch of whole transactions, each from its Begin to its Commit; raises ProtocolError for any other."""
    is_begin, is_commit = wire.where(b"B"), wire.where(b"C")
    started = np.cumsum(is_begin)
    depth: Ints = started - np.cumsum(is_commit)
    bad = np.flatnonzero((depth < 0) | (depth > 1))
    if bad.size:
        wire.refuse(int(bad[0]), "transactions are nested, or a commit has no begin")
    if len(wire) and depth[-1]:
        wire.refuse(len(wire) - 1, "the batch ends inside a transaction")
    inside = (depth == 1) | is_commit
    stray = np.flatnonzero(~inside & ~wire.where(b"M"))
    if stray.size:
        wire.refuse(int(stray[0]), "the message stands outside a transaction")
    begins, commits = np.flatnonzero(is_begin), np.flatnonzero(is_commit)
    lsn, xid, time_us = _ends(wire, begins, commits)
    number = np.maximum(started - 1, 0)
    if not begins.size:
        nothing = np.zeros(len(wire), np.int64)
        return Places(nothing, nothing, nothing, inside, number, begins)
    return Places(lsn[number], xid[number], time_us[number], inside, number, begins)


def part_of(wire: Wire, transaction: TransactionInfo) -> Places:
    """The places in a part of one transaction.

    Its Begin may be the first message and its Commit the last; they must be those of `transaction`. Raises ProtocolError.
    """
    size = len(wire)
    begins, commits = np.flatnonzero(wire.where(b"B")), np.flatnonzero(wire.where(b"C"))
    for index in begins[begins > 0]:
        wire.refuse(int(index), "a transaction begins inside a part of another")
    for index in commits[commits < size - 1]:
        wire.refuse(int(index), "a transaction ends inside a part of it")
    _fixed_size(wire, begins, _BEGIN_BYTES)
    _fixed_size(wire, commits, _COMMIT_BYTES)
    times = _times(
        wire, np.concatenate((begins, commits)), np.concatenate((wire.at[begins] + 9, wire.at[commits] + 18))
    )
    if (
        (wire.uint32(wire.at[begins] + 17) != transaction.xid).any()
        or (wire.int64(wire.at[commits] + 10) != transaction.end_lsn.value).any()
        or (times != transaction.commit_time_us).any()
    ):
        wire.refuse(int(np.concatenate((begins, commits))[0]), "it belongs to another transaction")
    return Places(
        np.full(size, transaction.end_lsn.value, np.int64),
        np.full(size, transaction.xid, np.int64),
        np.full(size, transaction.commit_time_us, np.int64),
        np.ones(size, np.bool_),
        np.zeros(size, np.int64),
        np.zeros(min(size, 1), np.int64),
    )


def _ends(wire: Wire, begins: Ints, commits: Ints) -> tuple[Ints, Ints, Ints]:
    """Position, xid and commit time of each transaction, from its two ends, which must agree."""
    _fixed_size(wire, begins, _BEGIN_BYTES)
    _fixed_size(wire, commits, _COMMIT_BYTES)
    begin, commit = wire.at[begins], wire.at[commits]
    times = _times(wire, commits, commit + 18)
    disagree = (wire.int64(begin + 1) != wire.int64(commit + 2)) | (_times(wire, begins, begin + 9) != times)
    position = wire.int64(commit + 10)
    bad = np.flatnonzero(disagree | (wire.octets[commit + 1] != 0) | (position <= 0))
    if bad.size:
        wire.refuse(int(commits[bad[0]]), "it does not agree with its begin, or has no position")
    return position, wire.uint32(begin + 17), times


def _times(wire: Wire, messages: Ints, at: Ints) -> Ints:
    """The times at these offsets, since the Unix epoch."""
    times = wire.int64(at)
    bad = np.flatnonzero(times > TIME_US_MAX - POSTGRES_EPOCH_US)
    if bad.size:
        wire.refuse(int(messages[bad[0]]), "the time lies beyond all calendars")
    return times + POSTGRES_EPOCH_US


def _fixed_size(wire: Wire, messages: Ints, size: int) -> None:
    bad = np.flatnonzero(wire.end[messages] - wire.at[messages] != size)
    if bad.size:
        wire.refuse(int(messages[bad[0]]), f"it is not of {size} bytes")
