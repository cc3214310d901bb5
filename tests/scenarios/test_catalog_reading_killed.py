"""A drain is killed around the file of a reading of the catalog: what is left is named by no link, and the next records."""

from __future__ import annotations

import pytest

from lakeproof.landing.catalog_history import newest_catalog, newest_catalog_manifest
from lakeproof.landing.chain import verify_chain
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import Drained, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
ITEMS = TableName("public", "items")


@pytest.mark.parametrize("place", ["drain.before_fingerprint", "drain.after_fingerprint"])
def test_a_reading_whose_writer_was_killed_is_made_by_the_next(drained: Drained, place: str) -> None:
    """The chain is whole, its newest reading is the next drain's, and the rows are the source's."""
    drained.database.execute("CREATE TABLE items (id int PRIMARY KEY, note text)")
    drained.begin()
    drained.database.execute("ALTER TABLE items ADD COLUMN price int")
    killed = drained.start_process("stopped", place, catalog_interval_s=0.05)
    killed.communicate(timeout=120)
    assert killed.returncode == -9
    wait_until(lambda: drained.active_pid() is None)
    drained.database.execute("INSERT INTO items SELECT g, 'x', g FROM generate_series(1, 5) g")
    drained.drain()
    chain = drained.chain()
    newest, existing = newest_catalog_manifest(chain), newest_catalog(chain)
    assert newest is not None
    assert existing is not None
    assert newest.number > 0
    assert [len(facts.columns) for facts in existing.tables.values()] == [3]
    assert verify_chain(chain) == chain.next_number
    assert drained.folded()[ITEMS] == drained.source_rows(ITEMS)
