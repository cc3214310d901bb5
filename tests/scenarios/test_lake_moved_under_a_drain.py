"""The lake's folder is moved away, or its volume unmounted, under a running drain: it ends, and the slot waits.

What it lands elsewhere would be a landing without a beginning, and the slot would forget what the lake does not have.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeproof.names import TableName
from tests.support.ingest.fix_drain import Drained, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
ITEMS = TableName("public", "items")


@pytest.mark.parametrize(
    ("moved", "words"),
    [("", "its folder is gone since this process began"), ("shop", "the landing's newest manifest is gone")],
    ids=["moved", "unmounted"],
)
def test_nothing_is_confirmed_that_the_lake_does_not_have(
    drained: Drained, tmp_path: Path, moved: str, words: str
) -> None:
    """Whoever brings it back goes on without a gap."""
    drained.database.execute("CREATE TABLE items (id int PRIMARY KEY)")
    drained.begin()
    here, there = drained.lake / moved, tmp_path / "there"
    with drained.running("stopped", flush_interval_s=0.05, progress_interval_s=0.1) as process:
        drained.database.execute("INSERT INTO items SELECT generate_series(1, 100)")
        wait_until(lambda: len(drained.folded().get(ITEMS, ())) == 100)
        here.rename(there)
        drained.database.execute("INSERT INTO items SELECT generate_series(101, 200)")
        assert process.wait(120) == 2
        assert words in "".join(process.communicate())
    if here.exists():
        # Empty folders and files that nobody names.
        assert not list(here.rglob("*.json"))
        here.rename(tmp_path / "left")
    there.rename(here)
    assert drained.confirmed_flush() <= drained.chain().end
    drained.drain()
    assert len(drained.folded()[ITEMS]) == 200
    assert drained.folded()[ITEMS] == drained.source_rows(ITEMS)
