"""A drain reports its progress in a large transaction, which is durable only at its end."""

from __future__ import annotations

import threading
from itertools import count

import pytest

from lakeproof.commands.drain import drain
from lakeproof.drain import progress as large
from lakeproof.drain.until import Until
from lakeproof.events import Event
from lakeproof.failpoints import watched
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import SOURCE, Drained

pytestmark = pytest.mark.postgres
# The one before it is done, and several follow.
_HELD_PART = 3
# A drain that never looks while it decodes fails the test after this.
_HOLD_S = 60.0


def test_a_large_transaction_is_reported_before_it_is_durable(drained: Drained) -> None:
    """Its bytes are reported while they arrive or are decoded; all of it lands.

    Decoding is held between two of its parts until a report is due and the drain has looked, however fast the machine.
    """
    drained.database.execute("CREATE TABLE big (id int PRIMARY KEY, v text)")
    drained.begin()
    drained.database.execute("INSERT INTO big SELECT n, repeat('x', 3000) FROM generate_series(1, 25000) n")
    events = list[Event]()
    parts = count(1)
    seen = threading.Event()

    def hold(name: str) -> None:
        if name == "drain.decoded" and next(parts) == _HELD_PART:
            seen.wait(_HOLD_S)

    def report(event: Event) -> None:
        events.append(event)
        if event.fields.get("decoded_bytes"):
            seen.set()

    with watched(hold):
        drain(drained.config(), SOURCE, Until.caught_up(), report)
    kinds = [event.kind for event in events]
    assert "drain.progress" in kinds[: kinds.index("drain.flush")]
    message = [event for event in events if event.kind == "drain.progress"]
    assert all(event.fields.get("received_bytes", event.fields.get("bytes")) >= large.LARGE_BYTES for event in message)
    decoded = [event.fields["decoded_bytes"] for event in message if "decoded_bytes" in event.fields]
    assert decoded == sorted(decoded)
    assert decoded
    big = TableName("public", "big")
    assert drained.folded()[big] == drained.source_rows(big)
