"""The cause of a table's new file: the TRUNCATE of a transaction that the landing has, or something else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeproof.change_counts import ChangeCounts
from lakeproof.drain.catalog.new_files import is_emptied_by
from lakeproof.hidden_columns import LSN, OP, SEQ
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.segment import SegmentWriter
from lakeproof.lsn import Lsn
from lakeproof.pgoutput.rows import Batch, TableBatch
from tests.core.landing.landing_segments import START, WRITER, inserts, new_chain, version

XID = "7"
TABLE = version().oid


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    """A chain that has just begun."""
    return new_chain(tmp_path / "lake")


def _after(batch: Batch, seq: int) -> Batch:
    """Return the batch with its changes from this number in the transaction on."""
    table = batch.changes[0]
    moved = pc.add(table.rows.column(SEQ), pa.scalar(seq, pa.int64()))
    rows = table.rows.set_column(table.rows.schema.get_field_index(SEQ), SEQ, moved)
    return replace(batch, changes=[replace(table, rows=rows)])


def _truncate(seq: int) -> Batch:
    """Return a truncate of the table, as a part of the transaction at 2000."""
    batch = _after(inserts(version(), 2000, 1), seq)
    rows = batch.changes[0].rows
    operation = pa.array(["truncate"]).dictionary_encode().cast(rows.schema.field(OP).type)
    rows = rows.set_column(rows.schema.get_field_index(OP), rows.schema.field(OP), operation)
    return replace(batch, changes=[TableBatch(version(), rows, ChangeCounts(0, 0, 0, 1, 0, 0))])


def _landed(chain: Chain, *batches: Batch) -> None:
    segment = SegmentWriter(chain, WRITER)
    for batch in batches:
        segment.add(batch)
    segment.finish(Lsn(batches[-1].changes[0].rows.column(LSN)[-1].as_py()))


def test_a_table_is_emptied_by_a_truncate_after_its_last_row(chain: Chain) -> None:
    """Rows of other transactions do not matter, nor do those before the truncate."""
    _landed(chain, inserts(version(), 2000, 3), _truncate(3))
    assert is_emptied_by(XID, chain, START, TABLE)
    assert not is_emptied_by("8", chain, START, TABLE)


def test_a_table_that_was_filled_again_is_not_emptied(chain: Chain) -> None:
    """The rows came after the truncate, in the same transaction."""
    _landed(chain, _truncate(0), _after(inserts(version(), 2000, 3), 1))
    assert not is_emptied_by(XID, chain, START, TABLE)


def test_a_transaction_of_millions_of_rows_is_judged_in_little_memory(chain: Chain) -> None:
    """A table is emptied and filled again in one transaction, as every night: its rows are never in memory together."""
    parts = [_after(inserts(version(), 2000, 100_000), 1 + 100_000 * n) for n in range(10)]
    _landed(chain, _truncate(0), *parts)
    del parts
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        assert not is_emptied_by(XID, chain, START, TABLE)
    finally:
        pa.set_memory_pool(before)
    assert pool.max_memory() < 8 << 20, "three columns of all rows take 17 MB"
