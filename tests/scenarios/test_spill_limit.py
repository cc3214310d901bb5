"""A source sends more than may wait on disk: the drain goes on, or says what is too large.

How spills are counted is in `tests/core/drain/test_drain_streamed_transactions.py`.
"""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from lakeproof.errors import LakeError
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import Drained, told_to_stop, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
ITEMS = TableName("public", "items")
LIMIT = 4_000_000
LARGE = "INSERT INTO items SELECT g, repeat('x', 1000) FROM generate_series(%s::int, %s::int) g"


@pytest.fixture
def items(drained: Drained) -> Drained:
    """A table, a landing that has begun, and a server that streams everything beyond 64 kB."""
    drained.database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, note text)",
        SQL("ALTER DATABASE {} SET logical_decoding_work_mem = '64kB'").format(Identifier(drained.database.name)),
    )
    drained.begin()
    return drained


def test_open_transactions_beyond_the_limit_are_left_to_the_server(items: Drained, tmp_path: Path) -> None:
    """Three transactions of 3 MB are open at once, with room for 4 MB; two are committed, the third is rolled back."""
    with (
        psycopg.connect(items.dsn) as one,
        psycopg.connect(items.dsn) as two,
        psycopg.connect(items.dsn) as three,
        items.running("stopped", spill_bytes=100_000, spill_bytes_max=LIMIT, flush_interval_s=0.05) as process,
    ):
        wait_until(lambda: items.active_pid() is not None)
        first = items.active_pid()
        for number, conn in enumerate((one, two, three)):
            conn.execute(LARGE, [number * 3000, number * 3000 + 2999])
            # What is not committed is written out at a checkpoint, at the latest.
            items.database.execute("CHECKPOINT")
        wait_until(lambda: items.active_pid() not in (None, first))
        for conn in (one, three):
            conn.commit()
        two.rollback()
        items.database.execute("INSERT INTO items VALUES (-1, 'after')")
        target = items.database.end_of_wal()
        wait_until(lambda: items.chain().end >= target)
        err = told_to_stop(process)
    # Again, if the second comes before the first one's spill is landed and gone.
    assert 1 <= err.count("drain.spill_limit") <= 2, err
    assert f"more than {LIMIT} bytes" in err
    assert items.folded()[ITEMS] == items.source_rows(ITEMS)
    assert len(items.folded()[ITEMS]) == 6001


def test_a_transaction_that_is_larger_by_itself_ends_the_drain_with_the_limit_s_name(items: Drained) -> None:
    """The transactions before it are landed; with a higher limit it goes on from there."""
    items.database.execute("INSERT INTO items VALUES (-1, 'before')")
    with psycopg.connect(items.dsn) as conn:
        conn.execute(LARGE, [0, 5999])
    with pytest.raises(LakeError, match=rf"one transaction by itself takes more than {LIMIT} bytes .*spill_bytes_max"):
        items.drain(spill_bytes=100_000, spill_bytes_max=LIMIT)
    assert items.confirmed_flush() <= items.chain().end
    assert items.folded()[ITEMS] == [(-1, "before")]
    items.drain(spill_bytes=100_000, spill_bytes_max=2 * LIMIT)
    assert items.folded()[ITEMS] == items.source_rows(ITEMS)
