"""Finds for each message of a batch its transaction's position, xid and commit time, and its seq."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lakeproof.lsn import Lsn
from lakeproof.names import Xid
from lakeproof.pgoutput.message_buffer import Flags, Ints, MessageBuffer
from lakeproof.pgoutput.messages import Begin, Commit, LogicalMessage
from lakeproof.pgoutput.rows import TransactionInfo
from lakeproof.pgoutput.tags import tag_of
from lakeproof.values.commit_times import number_of, of_number

_BEGIN_BYTES = 21
_COMMIT_BYTES = 26


@dataclass(frozen=True, slots=True)
class TransactionPositions:
    """One entry per message.

    A message between transactions has `inside` False, and its other entries mean nothing. `begins` are the indices of the
    messages with which transactions begin, `number` is the ordinal of a message's transaction. `time` is PostgreSQL's number
    (`lakeproof.values.commit_times`): there are times for which 64 bits since 1970 are too few.
    """

    lsn: Ints
    xid: Ints
    time: Ints
    inside: Flags
    number: Ints
    begins: Ints

    def seq(self, weights: Ints, first_seq: int) -> tuple[Ints, int]:
        """Return each message's seq (the next change's if it is no change), and the seq after the last.

        Message i takes `weights[i]` seqs.
        """
        through = np.cumsum(weights)
        before = through - weights
        if not self.begins.size:
            return before, first_seq
        seq = before - before[self.begins][self.number] + first_seq
        return seq, int(seq[-1] + weights[-1])

    def transaction_of(self, index: int) -> TransactionInfo:
        """Return the transaction of one message."""
        return TransactionInfo(self.lsn_of(index), Xid(int(self.xid[index])), of_number(int(self.time[index])))

    def lsn_of(self, index: int) -> Lsn:
        """Return the position of one message."""
        return Lsn(int(self.lsn[index]))


def whole_transactions(buffer: MessageBuffer) -> TransactionPositions:
    """Return the positions in a batch of whole transactions, from Begin to Commit; raises ProtocolError otherwise."""
    is_begin, is_commit = buffer.where(tag_of(Begin)), buffer.where(tag_of(Commit))
    started = np.cumsum(is_begin)
    depth: Ints = started - np.cumsum(is_commit)
    bad = np.flatnonzero((depth < 0) | (depth > 1))
    if bad.size:
        buffer.refuse(int(bad[0]), "transactions are nested, or a commit has no begin")
    if len(buffer) and depth[-1]:
        buffer.refuse(len(buffer) - 1, "the batch ends inside a transaction")
    inside = (depth == 1) | is_commit
    stray = np.flatnonzero(~inside & ~buffer.where(tag_of(LogicalMessage)))
    if stray.size:
        buffer.refuse(int(stray[0]), "the message is outside a transaction")
    begins, commits = np.flatnonzero(is_begin), np.flatnonzero(is_commit)
    lsn, xid, time_us = _ends(buffer, begins, commits)
    number = np.maximum(started - 1, 0)
    if not begins.size:
        nothing = np.zeros(len(buffer), np.int64)
        return TransactionPositions(nothing, nothing, nothing, inside, number, begins)
    return TransactionPositions(lsn[number], xid[number], time_us[number], inside, number, begins)


def part_of(buffer: MessageBuffer, transaction: TransactionInfo) -> TransactionPositions:
    """Return the positions in a part of one transaction.

    Its Begin may be the first message and its Commit the last; they must be those of `transaction`. Raises ProtocolError.
    """
    size = len(buffer)
    begins, commits = np.flatnonzero(buffer.where(tag_of(Begin))), np.flatnonzero(buffer.where(tag_of(Commit)))
    for index in begins[begins > 0]:
        buffer.refuse(int(index), "a transaction begins inside a part of another")
    for index in commits[commits < size - 1]:
        buffer.refuse(int(index), "a transaction ends inside a part of it")
    _fixed_size(buffer, begins, _BEGIN_BYTES)
    _fixed_size(buffer, commits, _COMMIT_BYTES)
    times = buffer.int64(np.concatenate((buffer.start[begins] + 9, buffer.start[commits] + 18)))
    time = number_of(transaction.commit_time_us)
    if (
        (buffer.uint32(buffer.start[begins] + 17) != transaction.xid).any()
        or (buffer.int64(buffer.start[commits] + 10) != transaction.end_lsn.value).any()
        or (times != time).any()
    ):
        buffer.refuse(int(np.concatenate((begins, commits))[0]), "it belongs to another transaction")
    return TransactionPositions(
        np.full(size, transaction.end_lsn.value, np.int64),
        np.full(size, transaction.xid, np.int64),
        np.full(size, time, np.int64),
        np.ones(size, np.bool_),
        np.zeros(size, np.int64),
        np.zeros(min(size, 1), np.int64),
    )


def _ends(buffer: MessageBuffer, begins: Ints, commits: Ints) -> tuple[Ints, Ints, Ints]:
    """Return position, xid and commit time of each transaction, from its Begin and Commit, which must agree."""
    _fixed_size(buffer, begins, _BEGIN_BYTES)
    _fixed_size(buffer, commits, _COMMIT_BYTES)
    begin, commit = buffer.start[begins], buffer.start[commits]
    times = buffer.int64(commit + 18)
    disagree = (buffer.int64(begin + 1) != buffer.int64(commit + 2)) | (buffer.int64(begin + 9) != times)
    position = buffer.int64(commit + 10)
    bad = np.flatnonzero(disagree | (buffer.octets[commit + 1] != 0) | (position <= 0))
    if bad.size:
        buffer.refuse(int(commits[bad[0]]), "it does not agree with its begin, or has no position")
    return position, buffer.uint32(begin + 17), times


def _fixed_size(buffer: MessageBuffer, messages: Ints, size: int) -> None:
    bad = np.flatnonzero(buffer.end[messages] - buffer.start[messages] != size)
    if bad.size:
        buffer.refuse(int(messages[bad[0]]), f"it is not of {size} bytes")
