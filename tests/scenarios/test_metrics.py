"""A drain and a compaction at work, seen from outside: what Prometheus scrapes, and what pg_stat_replication shows.

The server of the metrics alone is in `tests/core/state/test_metrics_server.py`.
"""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from demo.server import free_port
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import follow
from lakeproof.commands.drain import drain
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config, DrainConfig
from lakeproof.config.section.upkeep import CompactionConfig
from lakeproof.drain.until import Until
from lakeproof.events import RunControl, Stop, silent
from lakeproof.lake.records.store import newest_cut
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.metrics import definitions as m
from lakeproof.storage.source_lake import SourceLake
from tests.support.ingest.fix_drain import wait_until
from tests.support.pages.monitoring_queries import names_of, queries_of_dashboard, rules
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]
# A server without max_slot_wal_keep_size invalidates no slot, and there is no view.
_ABSENT = {m.SLOT_SECONDS_LEFT.name, m.VIEW_ROWS.name}


@dataclass(frozen=True)
class Shop:
    """A source with metrics at two addresses of this machine."""

    database: Database
    config: Config

    @property
    def lake(self) -> SourceLake:
        """The source's part of the lake."""
        return SourceLake.open(self.config.location, "shop")

    @property
    def addresses(self) -> tuple[str, str]:
        """The drain's and the compaction's."""
        source = self.config.source("shop")
        assert source.drain.metrics is not None
        assert source.compaction.metrics is not None
        return source.drain.metrics, source.compaction.metrics


@pytest.fixture
def shop(database: Database, tmp_path: Path) -> Shop:
    """One table with some rows, copied."""
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "INSERT INTO orders SELECT g, 'n' FROM generate_series(1, 100) g",
        "CREATE PUBLICATION pub FOR TABLE orders",
    )
    ports = [free_port() for _ in range(2)]
    source = database.source(
        buckets=16,
        drain=DrainConfig(flush_interval_s=0.2, progress_interval_s=0.2, metrics=f"127.0.0.1:{ports[0]}"),
        compaction=CompactionConfig(metrics=f"127.0.0.1:{ports[1]}"),
    )
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})
    bootstrap(config, "shop")
    return Shop(database, config)


@contextmanager
def _in_a_thread(work: Callable[[Stop], object]) -> Iterator[None]:
    stop = Stop()
    thread = threading.Thread(target=work, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.request()
        thread.join()


def _get(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def _is_ready(address: str) -> bool:
    with suppress(OSError):
        return _get(address, "/readyz")[0] == 200
    return False


def _scrape(address: str) -> dict[str, float]:
    """The sum of each time series' values, by its name."""
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(_get(address, "/metrics")[1]):
        for sample in family.samples:
            values[sample.name] = values.get(sample.name, 0.0) + sample.value
    return values


def _standby(shop: Shop) -> tuple[Lsn, Lsn, Lsn | None]:
    """Write, flush and replay of the drain, as the server has them."""
    ((write, flush, replay),) = shop.database.rows(
        "SELECT write_lsn::text, flush_lsn::text, replay_lsn::text FROM pg_stat_replication"
        " WHERE pid = (SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s)",
        [shop.database.name],
    )
    return Lsn.parse(write), Lsn.parse(flush), None if replay is None else Lsn.parse(replay)


@pytest.mark.full
def test_everything_that_is_shown_or_alarms_is_served(shop: Shop, spark: SparkSession) -> None:
    """Each metric has a value while both work, and the two of them have those of the lake and of the server."""
    drained, compacted = shop.addresses
    with (
        _in_a_thread(lambda stop: drain(shop.config, "shop", Until.stopped(), silent, stop)),
        _in_a_thread(lambda stop: follow(shop.config, "shop", spark, RunControl(silent, stop))),
    ):
        wait_until(lambda: _is_ready(drained) and _is_ready(compacted), 300)
        before = _scrape(drained)
        assert (before["lakeproof_connected"], before["lakeproof_ready"]) == (1, 1)
        shop.database.execute(
            "INSERT INTO orders SELECT g, 'n' FROM generate_series(101, 300) g",
            "UPDATE orders SET note = 'm' WHERE id <= 50",
            "DELETE FROM orders WHERE id > 290",
        )
        wait_until(lambda: _scrape(compacted).get("lakeproof_applied_changes_total") == 260, 300)
        proof = prove(shop.config, "shop", None, spark, request=TABLES_ALONE)
        assert [table.status for table in proof.tables.values()] == ["equal"]
        wait_until(lambda: _scrape(compacted).get("lakeproof_applied_lag_seconds") == 0, 300)
        # The record of the proofs is read once a minute: a new pair of processes reads it at once.
        served = [_scrape(drained), _scrape(compacted)]
        assert [values["lakeproof_held_tables"] for values in served] == [0, 0]
        assert served[0]["lakeproof_landed_changes_total"] == 200 + 50 + 10
        assert served[0]["lakeproof_landed_transactions_total"] == 3
        assert served[1]["lakeproof_applied_changes_total"] == 260
        assert served[1]["lakeproof_cycle_seconds_count"] >= 1
    with (
        _in_a_thread(lambda stop: drain(shop.config, "shop", Until.stopped(), silent, stop)),
        _in_a_thread(lambda stop: follow(shop.config, "shop", spark, RunControl(silent, stop))),
    ):
        wait_until(lambda: _is_ready(drained) and _is_ready(compacted), 300)
        wait_until(
            lambda: "lakeproof_proof_equal" in _scrape(drained) and "lakeproof_proof_equal" in _scrape(compacted)
        )
        after = [_scrape(drained), _scrape(compacted)]
    assert [values["lakeproof_proof_equal"] for values in after] == [1, 1]
    names = set().union(*served, *after)
    asked = set().union(*(names_of(query) for query in (*(rule["expr"] for rule in rules()), *queries_of_dashboard())))
    assert asked - names - _ABSENT - {"up"} == set()
    for by, page in ((m.By.DRAIN, served[0] | after[0]), (m.By.FOLLOW, served[1] | after[1])):
        expected = {metric.name for metric in m.ALL if metric.by in {by, m.By.BOTH} and not metric.buckets}
        assert expected - page.keys() - _ABSENT == set()


def test_the_server_shows_what_has_come_what_is_durable_and_what_is_in_a_cut(shop: Shop, spark: SparkSession) -> None:
    """Flush never passes what is durable (ack-after-durable), replay never passes flush, and replay reaches the cut."""
    seen: list[tuple[Lsn, Lsn, Lsn | None]] = []

    def look() -> None:
        seen.append(_standby(shop))
        chain = Chain.open_newest(shop.lake)
        # Read after the server's answer: what it says is durable is durable by now.
        assert chain is not None
        assert seen[-1][1] <= chain.end

    with _in_a_thread(lambda stop: drain(shop.config, "shop", Until.stopped(), silent, stop)):
        wait_until(lambda: _is_ready(shop.addresses[0]), 300)
        look()
        assert seen[-1][2] is None, "there is no cut yet"
        with _in_a_thread(lambda stop: follow(shop.config, "shop", spark, RunControl(silent, stop))):
            for number in range(3):
                shop.database.execute(f"INSERT INTO orders VALUES ({1000 + number}, 'x')")  # noqa: S608  (a number)
                end = shop.database.end_of_wal()
                deadline = time.monotonic() + 300
                while (replay := seen[-1][2]) is None or replay < end:
                    assert time.monotonic() < deadline, (seen[-1], str(end))
                    look()
                    time.sleep(0.05)
        cut = newest_cut(shop.lake)
        assert cut is not None
        assert cut.position >= seen[0][1], "what is replayed is in a cut"
    for write, flush, replay in seen:
        assert write >= flush
        assert replay is None or replay <= flush
    assert len({replay for _, _, replay in seen}) >= 4
