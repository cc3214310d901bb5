"""The metrics' server and what it asks: an address that is taken, a state that hangs or fails, tables without number.

A real drain and a real compaction behind it are in `tests/scenarios/test_metrics.py`.
"""

from __future__ import annotations

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence

import pytest
from prometheus_client.parser import text_string_to_metric_families

from demo.server import free_port
from lakeproof.config.section.metrics import read_address
from lakeproof.drain.counts import Flush, LandedCounts
from lakeproof.drain.pulse import Pulse
from lakeproof.events import Event
from lakeproof.lsn import Lsn
from lakeproof.metrics import definitions as m
from lakeproof.metrics.drain_state import UNFLUSHED_S, DrainCounters, DrainReadiness, PulseSamples
from lakeproof.metrics.follow_state import FollowReadiness
from lakeproof.metrics.samples import OTHER, PolledValue, Registry, Sample, TableLabels
from lakeproof.metrics.server import CONNECTIONS_MAX, MetricsServer, Served
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import wait_until

# With every label of every counter.
_SERIES_PER_TABLE = 8


@pytest.fixture
def address() -> str:
    """An address that is free now."""
    return f"127.0.0.1:{free_port()}"


def _get(address: str, path: str, accept: str = "") -> tuple[int, str]:
    request = urllib.request.Request(f"http://{address}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310  (http, to this process)
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def _is_listening(events: Sequence[Event]) -> bool:
    return any(event.kind == "metrics.listens" for event in events)


def _values(text: str) -> dict[str, float]:
    return {s.name: s.value for family in text_string_to_metric_families(text) for s in family.samples}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (9464, "127.0.0.1:9464"),
        ("9464", "127.0.0.1:9464"),
        ("0.0.0.0:9464", "0.0.0.0:9464"),
        ("[::1]:9464", "[::1]:9464"),
        ("metrics.local:80", "metrics.local:80"),
    ],
)
def test_an_address_without_a_host_is_one_of_the_loopback(written: object, expected: str) -> None:
    """Nothing is open to a network unless somebody writes so."""
    assert read_address(written) == expected


@pytest.mark.parametrize("written", ["", "host", "host:", "host:0", "host:65536", "a b:1", "::1:80", True, -1, 1.5])
def test_other_addresses_are_refused(written: object) -> None:
    """The value is not repeated, as of any setting."""
    with pytest.raises(ValueError, match="is no address"):
        read_address(written)


def test_the_pages_say_what_the_process_says(address: str) -> None:
    """`/readyz` has the reason and 503, `/healthz` is about the process alone, and another path is not there."""
    reasons: list[str | None] = [None, "the slot is gone"]
    registry = Registry(lambda: [Sample(m.READY, 1.0)])
    events: list[Event] = []
    with MetricsServer(address, Served(registry, lambda: reasons[-1]), events.append):
        wait_until(lambda: _is_listening(events))
        assert _get(address, "/healthz") == (200, '{"status": "ok"}\n')
        status, text = _get(address, "/readyz")
        assert (status, json.loads(text)["reason"]) == (503, "the slot is gone")
        reasons.pop()
        assert _get(address, "/readyz?verbose=1")[0] == 200
        assert _get(address, "/other")[0] == 404
        assert _values(_get(address, "/metrics")[1]) == {"lakeproof_ready": 1.0}
        assert _get(address, "/metrics", "application/openmetrics-text")[1].endswith("# EOF\n")


def test_an_address_that_the_predecessor_has_is_taken_when_it_is_free(address: str) -> None:
    """The work goes on meanwhile, and hears of it once."""
    earlier: list[Event] = []
    events: list[Event] = []
    first, second = Registry(lambda: [Sample(m.READY, 0.0)]), Registry(lambda: [Sample(m.READY, 1.0)])
    with MetricsServer(address, Served(first), earlier.append) as before:
        wait_until(lambda: _is_listening(earlier))
        after = MetricsServer(address, Served(second), events.append)
        with after:
            wait_until(lambda: bool(events))
            assert _values(_get(address, "/metrics")[1]) == {"lakeproof_ready": 0.0}
            before.__exit__(None, None, None)
            wait_until(lambda: _is_listening(events))
            assert _values(_get(address, "/metrics")[1]) == {"lakeproof_ready": 1.0}
    assert [event.kind for event in events] == ["metrics.waits", "metrics.listens"]


def test_an_address_that_nobody_has_ends_nothing() -> None:
    """A name that is no host's: the server tries again until the end of the work."""
    events: list[Event] = []
    with MetricsServer("no-such-host.invalid:9464", Served(Registry()), events.append):
        wait_until(lambda: bool(events))
    assert [event.kind for event in events] == ["metrics.waits"]


def test_connections_that_ask_nothing_do_not_keep_a_scrape_out_for_ever(address: str) -> None:
    """There is a limit, and beyond it a connection is closed at once."""
    events: list[Event] = []
    with MetricsServer(address, Served(Registry()), events.append):
        wait_until(lambda: _is_listening(events))
        host, port = address.split(":")
        idle = [socket.create_connection((host, int(port)), timeout=30) for _ in range(CONNECTIONS_MAX + 1)]
        assert idle[-1].recv(1) == b""
        for connection in idle:
            connection.close()
        wait_until(lambda: _answers(address))


def _answers(address: str) -> bool:
    try:
        return _get(address, "/healthz")[0] == 200
    except OSError:
        return False


def test_a_reading_that_hangs_leaves_a_scrape_what_was_read_before() -> None:
    """One thread reads at a time, whoever asks; each scrape that did not get an answer is counted."""
    now, hangs, begun = [0.0], threading.Event(), list[int]()

    def read() -> int:
        begun.append(1)
        if len(begun) > 1:
            hangs.wait(90)
        return len(begun)

    reading = PolledValue("test", read, lambda: now[0], wait_s=0.05)
    # A busy machine may take longer than that for the first one, too.
    wait_until(lambda: reading.value() == (1, 0.0))
    now[0], before = 10.0, reading.errors
    assert [reading.value(), reading.value()] == [(1, 10.0), (1, 10.0)]
    assert (len(begun), reading.errors - before) == (2, 2)
    hangs.set()
    wait_until(lambda: reading.value() == (2, 0.0))


def test_a_reading_that_fails_is_counted_and_ends_no_scrape() -> None:
    """Its values are absent, not wrong."""

    def read() -> int:
        raise OSError("the store is gone")

    reading = PolledValue("test", read)
    assert (reading.value(), reading.errors) == (None, 1)


def test_ten_thousand_tables_have_as_many_series_as_the_limit_allows() -> None:
    """The tables beyond it share one label, and nothing that changed is left out."""
    limit, registry = 50, Registry()
    counters = DrainCounters(registry, "shop", TableLabels(limit))
    tables = {TableName("shop", f"t{number}"): LandedCounts(1, 1, 1, 1, bytes=10) for number in range(10_000)}
    for number in (1, 2):
        counters.flushed(Flush(number, Lsn(1), Lsn(2), 1, 4, tables, 1, 1, (), 0.1))
    families = {f.name: f for f in text_string_to_metric_families(registry.text().decode())}
    changes, size = families["lakeproof_landed_changes"].samples, families["lakeproof_landed_bytes"].samples
    assert len(changes) == 4 * (limit + 1)
    assert len(changes) + len(size) <= _SERIES_PER_TABLE * (limit + 1)
    assert sum(s.value for s in changes) == 2 * 4 * 10_000
    assert sum(s.value for s in size) == 2 * 10 * 10_000
    assert sum(s.value for s in changes if s.labels["table"] == OTHER) == 2 * 4 * (10_000 - limit)


def test_a_drain_is_ready_while_it_is_connected_and_flushes() -> None:
    """Otherwise the reason is that of its last event, or for how long changes have waited."""
    now = [0.0]
    pulse = Pulse(lambda: now[0], lambda: now[0])
    readiness = DrainReadiness(pulse)
    assert readiness.why_not_ready() == "it has not connected yet"
    pulse.connect(Lsn(100))
    assert (readiness.why_not_ready(), readiness.why_not_alive()) == (None, None)
    pulse.beat(Lsn(200), Lsn(200))
    now[0] += UNFLUSHED_S
    assert readiness.why_not_ready() == "changes have waited for 120 s to become durable"
    now[0] += 600
    assert readiness.why_not_alive() == "the drain's loop has not moved for 720 s"
    readiness.observe(Event("drain.reconnect", "the server ended it; connecting again in 1 s"))
    pulse.disconnect()
    assert readiness.why_not_ready() == "the server ended it; connecting again in 1 s"
    assert readiness.why_not_alive() is None


def test_a_follower_is_ready_if_it_has_its_turn_or_waits_for_it() -> None:
    """An error that is tried again makes it unready until the next turn."""
    readiness = FollowReadiness("shop")
    assert readiness.why_not_ready() == "its first turn has not begun"
    for kind, holds in (("follow.waits", 0.0), ("follow.turn", 1.0)):
        readiness.observe(Event(kind, "…"))
        assert (readiness.why_not_ready(), [s.value for s in readiness()]) == (None, [holds])
    readiness.observe(Event("follow.again", "another process is writing"))
    assert (readiness.why_not_ready(), [s.value for s in readiness()]) == ("another process is writing", [0.0])


def test_a_scrape_shows_the_pulse_as_it_is_then() -> None:
    """Positions are numbers."""

    def state() -> Iterator[Sample]:
        return PulseSamples("shop", pulse)()

    pulse = Pulse()
    pulse.connect(Lsn.parse("2/1"))
    values = _values(Registry(state).text().decode())
    assert values["lakeproof_received_lsn"] == (2 << 32) + 1
    assert values["lakeproof_connected"] == 1.0
