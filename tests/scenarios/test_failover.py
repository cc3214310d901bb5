"""A standby is promoted: the drain goes on by itself if the standby has its slot and all that landed, else it stops."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo.server import EmbeddedPostgres
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.drain import drain
from lakeproof.drain.until import Until
from lakeproof.errors import GapError, TransientError
from lakeproof.events import Stop, silent
from lakeproof.landing.timelines import newest_followed
from tests.support.ingest.fix_drain import landed_rows, own_values, wait_until
from tests.support.servers.fix_postgres import MakeServer
from tests.support.servers.recovery import Shop
from tests.support.servers.standby import PRIMARY_CONF, caught_up, make_standby, promote, sync_slot

pytestmark = [pytest.mark.postgres, pytest.mark.full, pytest.mark.since(17)]
SLOT = "shop_slot"


@dataclass
class Pair:
    """A primary and its standby; `shop` speaks to the one that is asked for."""

    primary: EmbeddedPostgres
    standby: EmbeddedPostgres
    lake: Path

    def on(self, server: EmbeddedPostgres) -> Shop:
        """The shop with that server's DSN."""
        return Shop(server.dsn(), SLOT, self.lake)


@pytest.fixture
def pair(make_server: MakeServer, tmp_path: Path) -> Iterator[Pair]:
    """Running, in sync, nothing in them."""
    with make_server(conf=PRIMARY_CONF) as primary:
        standby = make_standby(primary, make_server, sync=True)
        try:
            yield Pair(primary, standby, tmp_path / "lake")
        finally:
            standby.stop()


def _begin(pair: Pair, *, failover: bool) -> Shop:
    shop = pair.on(pair.primary)
    shop.execute("CREATE TABLE items (id int PRIMARY KEY, note text)", "CREATE TABLE log (at int, what text)")
    shop.execute("ALTER TABLE log REPLICA IDENTITY FULL", "CREATE PUBLICATION pub FOR TABLE items, log")
    result = "SELECT pg_create_logical_replication_slot('shop_slot', 'pgoutput', false, false, {})"
    shop.execute("SELECT pg_log_standby_snapshot()")
    shop.execute(result.format("true") if failover else result.format("false"))
    shop.execute("INSERT INTO items VALUES (1, 'at the old one')")
    return shop


def _landed(shop: Shop) -> list[int]:
    return [own_values(version, row)[0] for version, row in landed_rows(shop.chain()) if row["_lp_op"] == "insert"]


def test_a_drain_goes_on_at_the_promoted_standby(pair: Pair) -> None:
    """A failover slot, and a DSN with both servers: the drain that runs finds the new one, nothing lost, nothing twice."""
    shop = _begin(pair, failover=True)
    both = f"host=127.0.0.1,127.0.0.1 port={pair.primary.port},{pair.standby.port} target_session_attrs=read-write"
    shop.dsn = f"{both} dbname=postgres user=postgres password={pair.primary.password}"
    bootstrap(shop.config, "shop")
    stop, failed = Stop(), list[BaseException]()

    def run() -> None:
        try:
            drain(shop.config, "shop", Until.stopped(), silent, stop)
        except BaseException as error:  # noqa: BLE001  raised again below, in the test's thread
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        shop.execute("INSERT INTO items VALUES (2, 'landed before')")
        wait_until(lambda: bool(failed) or _landed(shop) == [1, 2])
        sync_slot(pair.primary, pair.standby, SLOT)
        with pytest.raises(TransientError, match="the server is a standby"):
            pair.on(pair.standby).drain()
        pair.primary.halt()
        promote(pair.standby)
        shop.execute("INSERT INTO items VALUES (3, 'at the new one')", "UPDATE items SET note = 'x' WHERE id = 2")
        shop.execute("INSERT INTO items VALUES (4, 'at the new one')")
        wait_until(lambda: bool(failed) or _landed(shop) == [1, 2, 3, 4])
    finally:
        stop.request()
        thread.join()
    assert failed == []
    chain = shop.chain()
    assert chain.incarnation == 1
    followed = newest_followed(chain)
    assert followed is not None
    assert (followed.timeline, [s.timeline for s in followed.switches]) == (2, [1])
    shop.execute("INSERT INTO items VALUES (5, 'later')")
    shop.drain()
    assert _landed(shop) == [1, 2, 3, 4, 5]
    # The former primary comes back as it was: another server by now.
    pair.standby.halt()
    pair.primary.start()
    with pytest.raises(GapError, match="on timeline 1, the landing has followed it to 2"):
        pair.on(pair.primary).drain()


def test_a_plain_slot_is_not_on_the_standby(pair: Pair) -> None:
    """Refused with the gap: what came after the landing's end is not to be had."""
    shop = _begin(pair, failover=False)
    bootstrap(shop.config, "shop")
    shop.drain()
    end = shop.chain().end
    caught_up(pair.primary, pair.standby)
    pair.primary.halt()
    promote(pair.standby)
    shop = pair.on(pair.standby)
    with pytest.raises(GapError, match=rf"slot shop_slot: it does not exist; the landing ends at {end}, .*recover"):
        shop.drain()


def test_what_landed_beyond_the_switch_is_a_gap(pair: Pair) -> None:
    """The standby was behind when it was promoted: the landing has what the new primary never had."""
    shop = _begin(pair, failover=False)
    bootstrap(shop.config, "shop")
    caught_up(pair.primary, pair.standby)
    pair.standby.halt()
    shop.execute("INSERT INTO items VALUES (2, 'seen by the old one alone')")
    shop.drain()
    pair.primary.halt()
    pair.standby.start()
    promote(pair.standby)
    with pytest.raises(GapError, match=r"went to timeline 2 at .*, the landing ends at"):
        pair.on(pair.standby).drain()
