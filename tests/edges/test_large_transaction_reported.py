"""A drain reports its progress in a large transaction, which is durable only at its end."""

from __future__ import annotations

import pytest

from lakeproof.commands.drain import drain
from lakeproof.drain import large_transactions as large
from lakeproof.drain.until import Until
from lakeproof.events import Event
from lakeproof.names import TableName
from tests.fix_drain import SOURCE, Drained

pytestmark = pytest.mark.postgres


def test_a_large_transaction_is_reported_before_it_is_durable(
    drained: Drained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes are reported while they arrive or are decoded; all of it lands."""
    monkeypatch.setattr(
        large, "INTERVAL_S", 0.0
    )  # inside: a fast machine needs less than the second after which one is due
    drained.database.execute("CREATE TABLE big (id int PRIMARY KEY, v text)")
    drained.begin()
    # Large enough to be decoded for longer than the drain waits between two looks.
    drained.database.execute("INSERT INTO big SELECT n, repeat('x', 300) FROM generate_series(1, 350000) n")
    events = list[Event]()
    drain(drained.config(), SOURCE, Until.caught_up(), events.append)
    kinds = [event.kind for event in events]
    assert "drain.progress" in kinds[: kinds.index("drain.flush")]
    message = [event for event in events if event.kind == "drain.progress"]
    assert all(event.fields.get("received_bytes", event.fields.get("bytes")) >= large.LARGE_BYTES for event in message)
    decoded = [event.fields["decoded_bytes"] for event in message if "decoded_bytes" in event.fields]
    assert decoded == sorted(decoded)
    assert decoded
    big = TableName("public", "big")
    assert drained.folded()[big] == drained.source_rows(big)
