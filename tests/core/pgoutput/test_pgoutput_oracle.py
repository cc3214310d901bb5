"""The column-wise batch decoder against its row-wise twin, on random streams."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from lakeproof.pgoutput.batch import Batch, BatchDecoder, SchemaInForce, TransactionInfo
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.pgoutput.messages import Begin, Commit, Message
from lakeproof.pgoutput.relations import RelationCache
from lakeproof.pgoutput.rows import PartitionRows
from tests.core.pgoutput.pgoutput_encoder import encode, frame
from tests.core.pgoutput.pgoutput_random import Workload, resolve
from tests.core.pgoutput.pgoutput_reference import assemble
from tests.core.pgoutput.pgoutput_same import assert_same

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)


@pytest.fixture(params=[*range(6), *(pytest.param(n, marks=pytest.mark.full) for n in range(6, 60))])
def rng(request: pytest.FixtureRequest) -> random.Random:
    """A generator of its own for each round, with its seed in the output of a failure."""
    print(f"LAKEPROOF_SEED={SEED} round {request.param}")  # noqa: T201  (to run a failure again)
    return random.Random(SEED + request.param)


def test_fast_and_slow_road_give_the_same_batches(rng: random.Random) -> None:
    """Batch after batch of one connection, every field and every bit of a float the same."""
    workload = Workload(rng)
    fast, slow = BatchDecoder(RelationCache(resolve)), RelationCache(resolve)
    for _ in range(4):
        messages = _stream(workload, transactions=rng.choice([0, 1, 3, 20]), changes=rng.choice([0, 1, 3, 30]))
        raw = [frame(encode(message)) for message in messages]
        batch = fast.decode(MessageBuffer.of(raw))
        assert_same(batch, assemble(raw, slow))


def test_a_transaction_in_parts_is_the_transaction(rng: random.Random) -> None:
    """Cut anywhere, even between a partition's announcement and its row, the parts together say what the whole says."""
    messages = Workload(rng).transaction(60)
    begin, commit = messages[0], messages[-1]
    assert isinstance(begin, Begin)
    assert isinstance(commit, Commit)
    raw = [frame(encode(message)) for message in messages]
    whole = BatchDecoder(RelationCache(resolve)).decode(MessageBuffer.of(raw))
    info = TransactionInfo(commit.end_lsn, begin.xid, begin.commit_time_us)
    cuts = sorted(rng.choices(range(len(raw) + 1), k=3))
    with_ends = rng.random() < 0.5
    decoder, seq, rows = BatchDecoder(RelationCache(resolve)), 0, 0
    actual: list[dict[str, Any]] = []
    schemas: list[SchemaInForce] = []
    partitions: list[PartitionRows] = []
    for start, stop in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        piece = raw[start:stop] if with_ends else raw[max(start, 1) : min(stop, len(raw) - 1)]
        part = decoder.decode_part(MessageBuffer.of(piece), info, seq)
        actual += [dict(row, _lp_ord=row["_lp_ord"] + rows) for row in _plain_rows(part)]
        schemas += part.schemas
        partitions += part.partitions
        seq, rows = part.next_seq, rows + part.rows
    by_row = sorted(actual, key=lambda row: row["_lp_ord"])
    assert by_row == sorted(_plain_rows(whole), key=lambda row: row["_lp_ord"])
    assert (schemas, seq, rows) == (whole.schemas, whole.next_seq, whole.rows)
    assert partitions == whole.partitions


def test_frames_may_be_views_of_memory(rng: random.Random) -> None:
    """Psycopg hands out memoryviews."""
    raw = [frame(encode(message)) for message in _stream(Workload(rng), transactions=3, changes=5)]
    views = [memoryview(one) for one in raw]
    assert_same(
        BatchDecoder(RelationCache(resolve)).decode(MessageBuffer.of(views)), assemble(views, RelationCache(resolve))
    )


def _plain_rows(batch: Batch) -> list[dict[str, Any]]:
    """Rows as dictionaries whose floats compare by their text, since no NaN equals another; those in arrays too."""
    return [
        {name: repr(value) if isinstance(value, float | list) else value for name, value in row.items()}
        | {"version": table.version.id}
        for table in batch.changes
        for row in table.rows.to_pylist()
    ]


def _stream(workload: Workload, transactions: int, changes: int) -> list[Message]:
    messages: list[Message] = workload.between()
    for _ in range(transactions):
        messages += workload.transaction(workload.rng.randint(0, changes))
        messages += workload.between()
    return messages
