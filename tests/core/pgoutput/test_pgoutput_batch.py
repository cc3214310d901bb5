"""The batch decoder: what its rows say, and what it refuses."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from lakeproof.change_counts import ChangeCounts
from lakeproof.errors import InvariantError
from lakeproof.lsn import Lsn
from lakeproof.names import Oid, TableName, Xid
from lakeproof.pgoutput.batch import Batch, BatchDecoder, SchemaInForce, TransactionInfo
from lakeproof.pgoutput.decoder import ProtocolError
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.pgoutput.messages import (
    UNCHANGED,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldImage,
    StreamStart,
    StreamStop,
    Truncate,
    Update,
)
from lakeproof.pgoutput.relations import RelationCache
from lakeproof.pgoutput.rows import row_schema
from lakeproof.schema import Identity, SchemaVersion
from tests.core.pgoutput.pgoutput_encoder import encode, frame, frames
from tests.core.pgoutput.pgoutput_random import Workload, resolve
from tests.core.pgoutput.pgoutput_reference import assemble
from tests.core.pgoutput.pgoutput_transactions import T1, T2, TIME, relation, transaction
from tests.support.workloads.counted_calls import python_calls


def both(*messages: Message) -> Batch:
    """Decode on the fast road, and see that the slow one says the same of the rows."""
    raw = frames(*messages)
    batch = BatchDecoder(RelationCache(resolve)).decode(MessageBuffer.of(raw))
    slow = assemble(raw, RelationCache(resolve))
    assert [t.rows.to_pylist() for t in batch.changes] == [t.rows.to_pylist() for t in slow.changes]
    return batch


def picked(batch: Batch, *names: str) -> list[tuple[Any, ...]]:
    """Return these columns of all rows, by `_lp_ord`."""
    rows = [row for table in batch.changes for row in table.rows.to_pylist()]
    return [tuple(row[name] for name in names) for row in sorted(rows, key=lambda row: int(row["_lp_ord"]))]


def test_rows_have_exactly_the_columns_of_the_landing_format() -> None:
    """Names, types and order are those of lakeproof/landing/FORMAT.md."""
    version = resolve(relation())
    expected = [
        ("_lp_lsn", pa.int64()),
        ("_lp_seq", pa.int64()),
        ("_lp_ord", pa.int64()),
        ("_lp_op", pa.dictionary(pa.int8(), pa.string())),
        ("_lp_xid", pa.int64()),
        ("_lp_commit_time", pa.timestamp("us", "UTC")),
        ("_lp_commit_number", pa.int64()),
        ("_lp_unchanged", pa.list_(pa.int16())),
        ("_lp_text", pa.string()),
        ("c0", pa.int32()),
        ("c1", pa.string()),
    ]
    assert [(f.name, f.type) for f in row_schema(version)] == expected
    batch = both(*transaction(1, relation(), Insert(T1, ("1", "a"))))
    assert batch.changes[0].rows.schema == row_schema(version)


def test_positions_seqs_and_rows_follow_the_stream() -> None:
    """The position is the commit's end LSN; seq counts per transaction over all tables; row over the batch."""
    batch = both(
        *transaction(1, relation(T1), relation(T2), Insert(T1, ("1", "a")), Insert(T2, ("1", "b"))),
        *transaction(2, Delete(T2, OldImage.KEY, ("1", None)), Insert(T1, ("2", "c"))),
    )
    assert picked(batch, "_lp_lsn", "_lp_seq", "_lp_ord", "_lp_op", "_lp_xid", "c0", "c1") == [
        (1008, 0, 0, "insert", 1, 1, "a"),
        (1008, 1, 1, "insert", 1, 1, "b"),
        (2008, 0, 2, "delete", 2, 1, None),
        (2008, 1, 3, "insert", 2, 2, "c"),
    ]
    assert (batch.transactions, batch.rows, batch.end_lsn, batch.next_seq) == (2, 4, Lsn(2008), 2)
    assert (batch.first_commit_time_us, batch.last_commit_time_us) == (TIME - 2, TIME - 1)


def test_an_old_image_is_a_before_row_right_above_its_update() -> None:
    """The two rows share one seq; an update without an old image is one row."""
    update = Update(T1, OldImage.KEY, ("1", None), ("2", "b"))
    batch = both(*transaction(1, relation(), Update(T1, None, None, ("1", "a")), update, Insert(T1, ("3", "c"))))
    assert picked(batch, "_lp_seq", "_lp_ord", "_lp_op", "c0", "c1") == [
        (0, 0, "update", 1, "a"),
        (1, 1, "before", 1, None),
        (1, 2, "update", 2, "b"),
        (2, 3, "insert", 3, "c"),
    ]
    assert batch.changes[0].counts == ChangeCounts(1, 2, 0, 0, 1, 0)


def test_an_unchanged_value_is_taken_from_the_old_image_or_marked() -> None:
    """FULL has all values, a key image those of the key; what neither has is an ordinal in `_lp_unchanged`."""
    kinds = ("text", "text", "text")
    full = relation(T1, kinds, Identity.FULL)
    keyed = relation(T2, kinds)
    batch = both(
        *transaction(
            1,
            full,
            keyed,
            Update(T1, OldImage.ROW, ("k", "old", None), ("k", UNCHANGED, "x")),
            Update(T2, OldImage.KEY, ("k", None, None), (UNCHANGED, UNCHANGED, UNCHANGED)),
            Update(T2, None, None, ("k", "b", UNCHANGED)),
            Insert(T2, ("j", UNCHANGED, None)),
        )
    )
    assert picked(batch, "_lp_op", "_lp_unchanged", "c0", "c1", "c2") == [
        ("before", None, "k", "old", None),
        ("update", None, "k", "old", "x"),
        ("before", None, "k", None, None),
        ("update", [1, 2], "k", None, None),
        ("update", [2], "k", "b", None),
        ("insert", [1], "j", None, None),
    ]
    assert [table.counts.unchanged for table in batch.changes] == [0, 3]


def test_a_truncate_is_one_row_and_one_seq_per_table() -> None:
    """The rows follow the message's order."""
    message = Truncate((T2, Oid(5), T1), False, False)
    announced = [relation(oid) for oid in (T1, T2, Oid(5))]
    batch = both(*transaction(1, *announced, Insert(T1, ("1", "a")), message, Insert(T2, ("2", "b"))))
    assert picked(batch, "_lp_seq", "_lp_ord", "_lp_op", "c0") == [
        (0, 0, "insert", 1),
        (1, 1, "truncate", None),
        (2, 2, "truncate", None),
        (3, 3, "truncate", None),
        (4, 4, "insert", 2),
    ]
    assert [table.version.oid for table in batch.changes] == [T1, T2, Oid(5)]


def test_a_new_schema_in_mid_transaction_begins_a_new_version_there() -> None:
    """A column is added between two inserts of one transaction."""
    wider = relation(T1, ("int4", "text", "bool"))
    batch = both(*transaction(3, relation(), Insert(T1, ("1", "a")), wider, Insert(T1, ("2", "b", "t"))))
    assert [table.rows.num_columns for table in batch.changes] == [11, 12]
    assert batch.schemas == [
        SchemaInForce(resolve(relation()), Lsn(3008), 0),
        SchemaInForce(resolve(wider), Lsn(3008), 1),
    ]


def test_a_schema_that_was_another_for_no_change_goes_on() -> None:
    """The table was altered there and back: its rows are one run, and each version is reported."""
    wider = relation(T1, ("int4", "text", "bool"))
    batch = both(*transaction(3, relation(), Insert(T1, ("1", "a")), wider, relation(), Insert(T1, ("2", "b"))))
    assert [(table.version, table.rows.num_rows) for table in batch.changes] == [(resolve(relation()), 2)]
    assert [entry.version for entry in batch.schemas] == [resolve(relation()), resolve(wider), resolve(relation())]


def test_a_schema_without_a_change_is_reported_where_it_was_noticed() -> None:
    """The schema also holds for the next batch."""
    decoder = BatchDecoder(RelationCache(resolve))
    first = decoder.decode(MessageBuffer.of(frames(*transaction(1, relation()))))
    second = decoder.decode(MessageBuffer.of(frames(*transaction(2, relation(), Insert(T1, ("1", "a"))))))
    assert (first.rows, first.transactions, first.schemas) == (0, 0, [SchemaInForce(resolve(relation()), Lsn(1008), 0)])
    assert (second.rows, second.schemas) == (1, [])


def test_a_repeated_relation_is_no_new_schema() -> None:
    """The server repeats them after each ANALYZE."""
    batch = both(*transaction(1, relation(), relation(), Insert(T1, ("1", "a")), relation()))
    assert [entry.version for entry in batch.schemas] == [resolve(relation())]


def test_what_does_not_fit_its_type_stands_in_the_hidden_text() -> None:
    """The hidden text has the value by attribute number; the column has NULL."""
    schema = relation(T1, ("int4", "date", "timestamptz"))
    batch = both(*transaction(1, schema, Insert(T1, ("1", "infinity", "0044-03-15 12:00:00+00 BC"))))
    assert picked(batch, "c1", "c2", "_lp_text") == [(None, None, '{"2":"infinity","3":"0044-03-15 12:00:00+00 BC"}')]


def test_messages_are_handed_on_and_an_empty_batch_is_empty() -> None:
    """A heartbeat may stand between transactions; no frame gives no row and no position."""
    beat = LogicalMessage(False, Lsn(5), "beat", b"x")
    note = LogicalMessage(True, Lsn(6), "note", b"y")
    batch = both(beat, *transaction(1, note), beat)
    assert [(n.message, n.transaction and n.transaction.end_lsn, n.seq) for n in batch.logical_messages] == [
        (beat, None, 0),
        (note, Lsn(1008), 0),
        (beat, None, 0),
    ]
    assert (batch.rows, batch.end_lsn) == (0, Lsn(1008))
    assert BatchDecoder(RelationCache(resolve)).decode() == Batch([], 0, 0, None, None, None, [], [], 0)


GOOD = transaction(1, relation(), Insert(T1, ("1", "a")))
FULL = relation(T1, ("int4", "text"), Identity.FULL)


@pytest.mark.parametrize(
    "messages",
    [
        GOOD[:-1],
        GOOD[1:],
        [*GOOD, GOOD[-1]],
        [GOOD[0], *GOOD],
        [*GOOD, GOOD[2]],
        [*GOOD, GOOD[1]],
        [*GOOD, LogicalMessage(True, Lsn(1), "", b"")],
        [GOOD[0], GOOD[2], GOOD[1], GOOD[3]],
        [*GOOD[:-1], Insert(T2, ("1", "a")), GOOD[-1]],
        [*GOOD[:-1], Truncate((T1, T2), False, False), GOOD[-1]],
        [*GOOD[:-1], Insert(T1, ("1",)), GOOD[-1]],
        [*GOOD[:-1], Insert(T1, ("1", "a", "b")), GOOD[-1]],
        [*GOOD[:-1], Update(T1, OldImage.KEY, ("1",), ("1", "a")), GOOD[-1]],
        [*GOOD[:-1], Update(T1, OldImage.KEY, ("1", None), ("1",)), GOOD[-1]],
        [*GOOD[:-1], Delete(T1, OldImage.KEY, ("1",)), GOOD[-1]],
        [*GOOD[:-1], Delete(T1, OldImage.KEY, (UNCHANGED, None)), GOOD[-1]],
        [*GOOD[:-1], StreamStop(), GOOD[-1]],
        [*GOOD[:-1], StreamStart(Xid(1), True), GOOD[-1]],
        [*GOOD[:-1], Commit(Lsn(999), Lsn(1008), TIME - 1)],
        [*GOOD[:-1], Commit(Lsn(1000), Lsn(1008), TIME)],
        [*GOOD[:-1], Commit(Lsn(1000), Lsn.ZERO, TIME - 1)],
        [*GOOD[:-1], Commit(Lsn(1000), Lsn(1 << 63), TIME - 1)],
        [GOOD[0], FULL, Update(T1, OldImage.ROW, ("1", None), ("1", UNCHANGED)), GOOD[-1]],
    ],
    ids=lambda messages: "".join(type(m).__name__[0] for m in messages),
)
def test_a_stream_that_no_server_sends_is_refused_on_both_roads(messages: list[Message]) -> None:
    """Torn transactions, unknown tables, wrong counts, streamed chunks, ends that disagree."""
    raw = frames(*messages)
    with pytest.raises(ProtocolError):
        BatchDecoder(RelationCache(resolve)).decode(MessageBuffer.of(raw))
    with pytest.raises(ProtocolError):
        assemble(raw, RelationCache(resolve))


def test_a_frame_cut_anywhere_is_refused() -> None:
    """Each frame of a stream with all kinds of changes, at each of its bytes."""
    update = Update(T1, OldImage.KEY, ("1", None), ("2", UNCHANGED))
    messages = transaction(1, relation(), Insert(T1, ("1", "a")), update, Delete(T1, OldImage.KEY, ("2", None)))
    raw = frames(*messages, LogicalMessage(False, Lsn(5), "beat", b"x"))
    for index, whole in enumerate(raw):
        for length in range(len(whole)):
            cut = [*raw[:index], whole[:length], *raw[index + 1 :]]
            with pytest.raises(ProtocolError):
                BatchDecoder(RelationCache(resolve)).decode(MessageBuffer.of(cut))


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.full) for n in range(2, 8))])
def test_damaged_bytes_are_refused_on_both_roads_or_on_neither(seed: int) -> None:
    """After a damaged byte the fast and the slow path agree on whether it is still a stream, and on its rows."""
    rng = random.Random(seed)
    messages = [message for _ in range(3) for message in Workload(rng).transaction(5)]
    raw = frames(*messages)
    for _ in range(100):
        index = rng.randrange(len(raw))
        damaged = bytearray(raw[index])
        position = rng.randrange(25, len(damaged))
        damaged[position] = rng.choice([0, 1, 0xFF, 0x7F, ord("n"), ord("u"), ord("K"), rng.randrange(256)])
        stream = [*raw[:index], bytes(damaged), *raw[index + 1 :]]
        assert _outcome(_fast, stream) == _outcome(_slow, stream)


def _fast(stream: Sequence[bytes]) -> Batch:
    return BatchDecoder(RelationCache(resolve)).decode(MessageBuffer.of(stream))


def _slow(stream: Sequence[bytes]) -> Batch:
    return assemble(stream, RelationCache(resolve))


def _outcome(decode: Callable[[Sequence[bytes]], Batch], stream: Sequence[bytes]) -> object:
    try:
        batch = decode(stream)
    except ProtocolError:
        return "refused"
    return [repr(table.rows.to_pylist()) for table in batch.changes]


def test_text_that_is_not_utf8_is_kept_as_its_octets() -> None:
    """On both paths the column has NULL, and the row is marked as incomplete."""
    stream = frames(*transaction(1, relation(), Insert(T1, ("1", b"caf\xe9")), Insert(T1, ("2", "café"))))
    for decode in (_fast, _slow):
        assert picked(decode(stream), "c0", "c1", "_lp_text") == [(1, None, '{"!x2":"636166e9"}'), (2, "café", None)]


@pytest.mark.parametrize("text", ["", "x", "2147483648", "1 ", "0x1"])
def test_a_text_that_is_no_value_of_its_type_is_kept_under_a_mark(text: str) -> None:
    """PostgreSQL would never print such an int4, so the relation must be wrong."""
    batch = _fast(frames(*transaction(1, relation(), Insert(T1, (text, "a")), Insert(T1, ("5", "b")))))
    assert picked(batch, "c0", "c1", "_lp_text") == [(None, "a", f'{{"!1":"{text}"}}'), (5, "b", None)]


@pytest.mark.parametrize("payload", [b"k" + bytes(17), b"w" + bytes(24), b"", b"x" + bytes(30)])
def test_what_is_no_xlogdata_is_refused(payload: bytes) -> None:
    """A keepalive among the frames is the caller's mistake."""
    with pytest.raises(ProtocolError, match="XLogData"):
        BatchDecoder(RelationCache(resolve)).decode(MessageBuffer.of([*frames(*GOOD), payload]))


@pytest.mark.parametrize(
    ("messages", "info"),
    [
        (GOOD, TransactionInfo(Lsn(1008), Xid(2), TIME - 1)),
        (GOOD, TransactionInfo(Lsn(1009), Xid(1), TIME - 1)),
        (GOOD, TransactionInfo(Lsn(1008), Xid(1), TIME)),
        ([*GOOD, *GOOD], TransactionInfo(Lsn(1008), Xid(1), TIME - 1)),
        ([GOOD[1], GOOD[0]], TransactionInfo(Lsn(1008), Xid(1), TIME - 1)),
        ([GOOD[-1], GOOD[1]], TransactionInfo(Lsn(1008), Xid(1), TIME - 1)),
    ],
)
def test_a_part_of_another_transaction_is_refused(messages: list[Message], info: TransactionInfo) -> None:
    """Begin and Commit may stand at a part's ends only, and must be the transaction's own."""
    with pytest.raises(ProtocolError):
        BatchDecoder(RelationCache(resolve)).decode_part(MessageBuffer.of(frames(*messages)), info, 0)


def test_a_version_without_its_relations_columns_is_our_own_mistake() -> None:
    """The resolver's answer is checked, not trusted."""
    other = SchemaVersion(TableName("public", "t"), T1, Identity.DEFAULT, (), ())
    with pytest.raises(InvariantError, match="columns of its Relation"):
        BatchDecoder(RelationCache(lambda *_: other)).decode(MessageBuffer.of(frames(*GOOD)))


def test_an_error_of_the_resolver_passes_through() -> None:
    """The resolver knows the catalog and the remedy."""

    def refuse(*_: object) -> SchemaVersion:
        raise InvariantError("t", "no", "nothing")

    with pytest.raises(InvariantError, match="no"):
        BatchDecoder(RelationCache(refuse)).decode(MessageBuffer.of(frames(*GOOD)))


def test_work_in_python_does_not_grow_with_the_batch() -> None:
    """Ten times the changes of one table take the same number of Python calls."""
    assert _calls(1000) == _calls(100)


def _calls(changes: int) -> int:
    raw = frames(*transaction(1, relation(), *(Insert(T1, (str(number), "a")) for number in range(changes))))
    decoder = BatchDecoder(RelationCache(resolve))
    return python_calls(lambda: decoder.decode(MessageBuffer.of(raw)))


def test_a_frame_carries_the_message_after_its_header() -> None:
    """The encoder of these tests writes what the decoder reads: 25 bytes, beginning with w."""
    raw = frame(encode(GOOD[0]), 7)
    assert raw[:1] + raw[25:26] == b"wB"
    assert struct.unpack(">QQ", raw[1:17]) == (7, 7)
