"""Whole transactions to record batches, one message at a time: the slow twin of `batch.py`, and its oracle.

Nothing in production calls it; what is common to both is the caster and the columns' schema in `rows.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakeproof.change_counts import ChangeCounts
from lakeproof.names import Oid
from lakeproof.pgoutput.decoder import HEADER_BYTES, ProtocolError, decode
from lakeproof.pgoutput.message_buffer import Frame
from lakeproof.pgoutput.messages import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldImage,
    Origin,
    Relation,
    Truncate,
    TypeName,
    Update,
    Value,
    Values,
)
from lakeproof.pgoutput.relations import RelationCache
from lakeproof.pgoutput.rows import (
    BEFORE,
    DELETE,
    INSERT,
    TRUNCATE,
    UPDATE,
    Batch,
    HiddenColumns,
    PartitionRows,
    SchemaInForce,
    StreamMessage,
    TableBatch,
    TransactionInfo,
    has_position,
    operations,
    record_batch,
)
from lakeproof.schema import SchemaVersion
from lakeproof.values.commit_times import is_of_calendar


@dataclass(frozen=True, slots=True)
class _Row:
    """A row to come; its position is set at the transaction's commit."""

    transaction: int
    seq: int
    row: int
    operation: int
    values: Values


@dataclass(slots=True)
class _Assembler:
    relations: RelationCache
    transactions: list[TransactionInfo] = field(default_factory=list)
    begun: Begin | None = None
    announced: Relation | None = None
    partitions: list[tuple[Oid, Oid, int]] = field(default_factory=list)
    seq: int = 0
    rows: int = 0
    runs: list[tuple[SchemaVersion, list[_Row]]] = field(default_factory=list)
    newest: dict[Oid, int] = field(default_factory=dict)
    schemas: list[tuple[SchemaVersion, int, int]] = field(default_factory=list)
    messages: list[tuple[LogicalMessage | Origin, int | None, int]] = field(default_factory=list)

    def take(self, message: Message) -> None:
        """Take a message of the stream."""
        if isinstance(message, LogicalMessage):
            self.announced = None
        match message:
            case Begin():
                if self.begun is not None:
                    raise ProtocolError(b"B", 0, "a transaction begins inside another")
                self.begun, self.announced, self.seq = message, None, 0
            case Commit():
                self._commit(message)
            case LogicalMessage():
                if not message.transactional and not has_position(message.lsn):
                    raise ProtocolError(b"M", 2, "the message has no position")
                if message.transactional and self.begun is None:
                    raise ProtocolError(b"M", 1, "a transactional message is outside a transaction")
                place = len(self.transactions) if message.transactional else None
                self.messages.append((message, place, 0 if place is None else self.seq))
            case _:
                if self.begun is None:
                    raise ProtocolError(b"", 0, "the message is outside a transaction")
                self._inside(message)

    def _commit(self, commit: Commit) -> None:
        begun = self.begun
        if begun is None or (begun.final_lsn, begun.commit_time_us) != (commit.commit_lsn, commit.commit_time_us):
            raise ProtocolError(b"C", 0, "it does not agree with its begin")
        if not has_position(commit.end_lsn):
            raise ProtocolError(b"C", 10, "it has no position")
        self.transactions.append(TransactionInfo(commit.end_lsn, begun.xid, begun.commit_time_us))
        self.begun = None

    def _inside(self, message: Message) -> None:
        announced, self.announced = self.announced, message if isinstance(message, Relation) else None
        if announced and isinstance(message, Insert | Update | Delete) and message.relation != announced.oid:
            self.partitions.append((announced.oid, message.relation, len(self.transactions)))
        match message:
            case Relation():
                self._learn(message)
            case Insert():
                self._emit(message.relation, ((INSERT, message.new),))
                self.seq += 1
            case Update():
                self._update(message)
                self.seq += 1
            case Delete():
                self._emit(message.relation, ((DELETE, message.old),))
                self.seq += 1
            case Truncate():
                for oid in message.relations:
                    self._emit(oid, ((TRUNCATE, None),))
                    self.seq += 1
            case Origin():
                self.messages.append((message, len(self.transactions), self.seq))
            case TypeName():
                pass
            case _:
                raise ProtocolError(b"", 0, "a streamed or prepared transaction")

    def _learn(self, relation: Relation) -> None:
        before = self.relations.get(relation.oid)
        after = self.relations.learn(relation)
        if after != before:
            self.schemas.append((after, len(self.transactions), self.seq))

    def _update(self, update: Update) -> None:
        if update.old is None:
            self._emit(update.relation, ((UPDATE, update.new),))
            return
        new: list[Value] = []
        for old_value, value in zip(update.old, update.new, strict=False):
            if value is not UNCHANGED:
                new.append(value)
            elif old_value is not None:
                new.append(old_value)
            elif update.old_image is OldImage.KEY:
                new.append(UNCHANGED)
            else:
                raise ProtocolError(b"U", 5, "a value is unchanged that the old row does not have")
        self._emit(update.relation, ((BEFORE, update.old), (UPDATE, (*new, *update.new[len(new) :]))))

    def _emit(self, oid: Oid, rows: Sequence[tuple[int, Values | None]]) -> None:
        version = self.relations.get(oid)
        if version is None:
            raise ProtocolError(b"", 1, f"relation {oid} was never announced")
        for operation, values in rows:
            if values is not None and len(values) != len(version.columns):
                raise ProtocolError(b"", 6, "a tuple does not have the columns of its relation")
            cells = (None,) * len(version.columns) if values is None else values
            self._run(oid, version).append(_Row(len(self.transactions), self.seq, self.rows, operation, cells))
            self.rows += 1

    def _run(self, oid: Oid, version: SchemaVersion) -> list[_Row]:
        newest = self.newest.get(oid)
        if newest is None or self.runs[newest][0] != version:
            newest = self.newest[oid] = len(self.runs)
            self.runs.append((version, []))
        return self.runs[newest][1]


def _message_of(frame: bytes) -> bytes:
    if len(frame) <= HEADER_BYTES or frame[:1] != b"w":
        raise ProtocolError(frame[:1], 0, "the frame is no XLogData with a message")
    return frame[HEADER_BYTES:]


def assemble(frames: Sequence[Frame], relations: RelationCache) -> Batch:
    """Return what `BatchDecoder.decode` gives for the same frames; raises the same errors, with other words."""
    assembler = _Assembler(relations)
    for frame in frames:
        assembler.take(decode(_message_of(bytes(frame))))
    if assembler.begun is not None:
        raise ProtocolError(b"", 0, "the batch ends inside a transaction")
    return _batch(assembler)


def _batch(done: _Assembler) -> Batch:
    transactions = done.transactions
    times = [transaction.commit_time_us for transaction in transactions]
    return Batch(
        changes=[_table_changes(version, rows, transactions) for version, rows in done.runs],
        transactions=len({row.transaction for _, rows in done.runs for row in rows}),
        rows=done.rows,
        end_lsn=transactions[-1].end_lsn if transactions else None,
        first_commit_time_us=min(times, default=None),
        last_commit_time_us=max(times, default=None),
        schemas=[SchemaInForce(version, transactions[t].end_lsn, seq) for version, t, seq in done.schemas],
        logical_messages=[
            StreamMessage(message, None if place is None else transactions[place], seq)
            for message, place, seq in done.messages
        ],
        next_seq=done.seq,
        partitions=[PartitionRows(leaf, root, transactions[t]) for leaf, root, t in done.partitions],
    )


def _table_changes(version: SchemaVersion, rows: list[_Row], transactions: list[TransactionInfo]) -> TableBatch:
    positions = [transactions[row.transaction] for row in rows]
    times = [place.commit_time_us for place in positions]
    marks = [[i for i, value in enumerate(row.values) if value is UNCHANGED] for row in rows]
    hidden = HiddenColumns(
        lsn=pa.array([place.end_lsn.value for place in positions], pa.int64()),
        seq=pa.array([row.seq for row in rows], pa.int64()),
        row=pa.array([row.row for row in rows], pa.int64()),
        operation=operations(pa.array([row.operation for row in rows], pa.int8())),
        xid=pa.array([place.xid for place in positions], pa.int64()),
        commit_time=pa.array([us if is_of_calendar(us) else None for us in times], pa.timestamp("us", "UTC")),
        commit_number=pa.array([None if is_of_calendar(us) else us - 946_684_800_000_000 for us in times], pa.int64()),
        unchanged=pa.array([mark or None for mark in marks], pa.list_(pa.int16())),
    )
    texts = [
        pa.array([_octets(value) for value in column], pa.binary())
        for column in (list(zip(*(row.values for row in rows), strict=True)) or [()] * len(version.columns))
    ]
    operations_count = [sum(row.operation == code for row in rows) for code in range(5)]
    counts = ChangeCounts(
        inserts=operations_count[INSERT],
        updates=operations_count[UPDATE],
        deletes=operations_count[DELETE],
        truncates=operations_count[TRUNCATE],
        befores=operations_count[BEFORE],
        unchanged=sum(bool(mark) for mark in marks),
    )
    return TableBatch(version, record_batch(version, hidden, texts), counts)


def _octets(value: Value) -> bytes | None:
    return value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else None
