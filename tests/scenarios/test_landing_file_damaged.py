"""A file of the newest segment is empty, missing, cut short or changed: the drain does not need it, and goes on.

What a compaction does with such a file, and the way out of that, is in `tests/edges/lake/test_lake_damaged_files.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakeproof.commands.drain import drain
from lakeproof.commands.recover import plan_recover
from lakeproof.drain.until import Until
from lakeproof.errors import LakeError, SourceError
from lakeproof.events import Event
from lakeproof.landing.segments.reader import file_url, verify_files
from tests.support.ingest.fix_drain import SOURCE, Drained

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


def _change(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4] + bytes(byte ^ 0xFF for byte in data[4:]))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "missing": Path.unlink,
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "changed": _change,
}


def test_a_drain_goes_on_past_a_damaged_file_of_the_newest_segment(drained: Drained) -> None:
    """The slot stands behind the landing, so the drain looks at the past; `recover` says that there is nothing for it."""
    database = drained.database
    database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, note text)",
        "CREATE TABLE parts (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')",
        "ALTER PUBLICATION shop SET (publish_via_partition_root = true)",
    )
    drained.begin()
    for number, (name, damage) in enumerate(DAMAGES.items()):
        rows = f"SELECT g, 'note' FROM generate_series({number * 10}, {number * 10 + 9}) g"  # noqa: S608  numbers
        database.execute(f"INSERT INTO items {rows}", "TRUNCATE parts")
        with drained.running("caught_up", "drain.after_manifest", flush_interval_s=600.0) as process:
            process.communicate(timeout=180)
        chain = drained.chain()
        assert drained.confirmed_flush() < chain.end
        for file in chain.newest.files:
            damage(Path(file_url(chain, file)))
        with pytest.raises(LakeError, match="segment file"):
            verify_files(chain, chain.newest)
        with pytest.raises(SourceError, match="there is nothing to recover"):
            plan_recover(drained.config(), SOURCE)
        database.execute(f"INSERT INTO items VALUES ({-1 - number}, 'after')")  # noqa: S608  as above
        events: list[Event] = []
        drain(drained.config(), SOURCE, Until.caught_up(), events.append)
        assert [event.fields["transactions"] for event in events if event.kind == "drain.history_checked"] == [2], name
        assert drained.chain().end == drained.confirmed_flush() > chain.end
