"""A server's files of an earlier time are copied back, and it writes on past the landing's end: seen before a byte is read.

The restore that stays behind the landing's end is in `test_recover.py`, with the lake after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL
from typing_extensions import LiteralString

from demo.server import EmbeddedPostgres
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.check import check_source
from lakeproof.commands.drain import drain
from lakeproof.commands.recover import plan_recover, recover
from lakeproof.commands.status import status
from lakeproof.drain.until import Until
from lakeproof.errors import GapError, SourceError
from lakeproof.events import Event
from lakeproof.landing.stuck import note_stuck
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation
from lakeproof.postgres.checks.findings import Severity
from lakeproof.snapshot.folder import snapshot_folders
from tests.support.servers.fix_postgres import MakeServer
from tests.support.servers.recovery import ITEMS, Shop, restore_files, save_files

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


# Of an unpublished table; streamed, with a part rolled back; rolled back; streamed, and nothing of it is left.
_OF_EVERY_KIND: tuple[LiteralString, ...] = (
    "INSERT INTO elsewhere VALUES (1, 'x')",
    "BEGIN",
    "INSERT INTO items SELECT g, repeat('y', 90) FROM generate_series({first}, {first} + 2000) g",
    "SAVEPOINT a",
    "UPDATE items SET note = repeat('z', 90)",
    "ROLLBACK TO a",
    "COMMIT",
    "BEGIN",
    "DELETE FROM items",
    "ROLLBACK",
    "BEGIN",
    "SAVEPOINT a",
    "UPDATE items SET note = repeat('w', 90)",
    "ROLLBACK TO a",
    "COMMIT",
)


class Stage:
    """A shop on its own server, whose files can be put back."""

    def __init__(self, server: EmbeddedPostgres, lake: Path) -> None:
        self.server = server
        self.shop = Shop(server.dsn(), "shop_slot", lake)

    def save(self) -> None:
        """Keep the files as they are now."""
        self.server.halt()
        save_files(self.server)
        self.server.start()

    def restore(self) -> None:
        """The files as they were kept, and a running server on them."""
        self.server.halt()
        restore_files(self.server)
        self.server.start()

    def end_of_wal(self) -> Lsn:
        """The server's position."""
        with psycopg.connect(self.shop.dsn, autocommit=True) as conn:
            row = conn.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        assert row is not None
        return Lsn.parse(row[0])

    def write(self, kilobytes: int, *, published: bool) -> None:
        """Write so much WAL, of a published table or of another."""
        table = SQL("items") if published else SQL("elsewhere")
        self.shop.execute(
            SQL(
                "INSERT INTO {} SELECT (SELECT coalesce(max(id), 0) FROM {}) + g, repeat('x', 900)"
                " FROM generate_series(1, {}) g"
            ).format(table, table, kilobytes)
        )

    def pass_by(self, position: Lsn, *, published: bool) -> None:
        """Write until the server stands beyond `position`."""
        while self.end_of_wal() <= position:
            self.write(20, published=published)


@pytest.fixture
def stage(make_server: MakeServer, tmp_path: Path) -> Iterator[Stage]:
    """Begin a landing, and land some changes."""
    with make_server(conf={"fsync": "off"}) as server:
        result = Stage(server, tmp_path / "lake")
        result.shop.begin()
        result.shop.execute("CREATE TABLE elsewhere (id int, note text)")
        result.shop.change(100)
        result.shop.drain()
        yield result


def test_what_landed_is_no_more_on_the_server(stage: Stage) -> None:
    """The drain names the transaction and begins nothing; `recover` agrees, and the source goes on."""
    shop = stage.shop
    stage.save()
    shop.change(200)
    shop.drain()
    end = shop.chain().end
    stage.restore()
    stage.pass_by(end, published=True)
    for _ in range(2):
        with pytest.raises(GapError, match="has written on since") as caught:
            shop.drain()
        assert shop.chain().end == end
    assert "lakeproof recover" in str(caught.value)
    assert "has written on since" in plan_recover(shop.config, "shop").reason
    recover(shop.config, "shop")
    shop.change(300)
    shop.drain()
    assert shop.chain().incarnation == 2


def test_a_stuck_stream_hides_no_other_history(stage: Stage) -> None:
    """The stream was stuck, and that is why the server was put back: its drain compares all the same."""
    shop = stage.shop
    stage.save()
    shop.change(200)
    shop.drain()
    chain = shop.chain()
    note_stuck(chain, "shop_slot", "the server's words")
    stage.restore()
    stage.pass_by(chain.end, published=True)
    for _ in range(2):
        with pytest.raises(GapError, match="has written on since"):
            shop.drain()
        assert shop.chain().end == chain.end
    assert "has written on since" in status(shop.config).problems[0].reason


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made_again"])
def test_a_publication_made_after_the_backup_hides_no_other_history(stage: Stage, *, again: bool) -> None:
    """The restored server does not have it, or has a younger one: what the other one sends is compared."""
    shop, creation = stage.shop, "CREATE PUBLICATION pub_inserts FOR TABLE bare WITH (publish = 'insert')"
    stage.shop.execute("CREATE TABLE bare (id int)")
    stage.save()
    shop.execute(SQL(creation))
    shop.change(200)
    shop.drain()
    shop.change(300)
    shop.drain()
    end = shop.chain().end
    stage.restore()
    if again:
        shop.execute(SQL(creation))
    stage.pass_by(end, published=True)
    for _ in range(2):
        with pytest.raises(GapError, match="has written on since"):
            shop.drain()
        assert shop.chain().end == end


def test_a_publication_that_is_dropped_is_no_other_history(stage: Stage) -> None:
    """The drain was killed before it had confirmed what it landed of both, the newest commit of the dropped one alone."""
    shop = stage.shop
    shop.execute(
        "CREATE TABLE bare (id int)", "CREATE PUBLICATION pub_inserts FOR TABLE bare WITH (publish = 'insert')"
    )
    shop.change(200)
    shop.drain()
    shop.change(300)
    shop.execute("INSERT INTO bare VALUES (1)")
    assert shop.typed("drain", "--once", failpoint="drain.after_manifest")[0] == -9
    end = shop.chain().end
    shop.execute("DROP PUBLICATION pub_inserts")
    shop.change(400)
    shop.drain()
    assert shop.chain().end > end


def test_every_command_refuses_as_the_drain_does(stage: Stage) -> None:
    """Behind the landing's end nobody has to have met it, beyond it `status` knows of it once somebody has; one remedy."""
    shop = stage.shop
    stage.save()
    shop.change(200)
    stage.write(400, published=False)
    shop.drain()
    end, copies = shop.chain().end, snapshot_folders(shop.source_lake, Incarnation(1))
    stage.restore()
    assert stage.end_of_wal() < end
    _refused_by_all(shop, "the server was restored to an earlier time")
    stage.pass_by(end, published=True)
    with pytest.raises(GapError, match="has written on since"):
        bootstrap(shop.config, "shop", [ITEMS])
    _refused_by_all(shop, "has written on since")
    assert snapshot_folders(shop.source_lake, Incarnation(1)) == copies
    recover(shop.config, "shop")
    assert not status(shop.config).problems


def _refused_by_all(shop: Shop, words: str) -> None:
    """Each command that would go on says these words, and has the remedy that `recover` is."""
    with pytest.raises(GapError, match=words) as drained:
        shop.drain()
    with pytest.raises(GapError) as copied:
        bootstrap(shop.config, "shop", [ITEMS])
    (problem,) = status(shop.config).problems
    (finding,) = [f for f in check_source(shop.config, "shop").findings if f.severity is Severity.ERROR]
    assert words in plan_recover(shop.config, "shop").reason
    assert shop.typed("status")[0] == 2
    assert "lakeproof recover" in problem.remedy
    for refusal in (copied.value, problem, finding):
        assert words in refusal.reason
        assert refusal.remedy == drained.value.remedy


def test_what_the_landing_only_passed_has_changes_now(stage: Stage) -> None:
    """No row landed after the backup, only progress; the new history has rows there, which a start at the end would skip."""
    shop = stage.shop
    stage.save()
    stage.write(200, published=False)
    shop.drain()
    end = shop.chain().end
    assert not shop.chain().newest.files
    stage.restore()
    shop.change(200)
    assert stage.end_of_wal() < end
    stage.pass_by(end, published=False)
    with pytest.raises(GapError, match=r"the server has transaction .* the landing, which ends at .* does not have it"):
        shop.drain()


def test_the_same_past_is_known_again(stage: Stage) -> None:
    """The drain and the server were killed; streamed, rolled back and empty transactions don't make another past of it."""
    shop, dsn = stage.shop, stage.shop.dsn
    shop.execute("CHECKPOINT", "ALTER SYSTEM SET logical_decoding_work_mem = '64kB'", "SELECT pg_reload_conf()")
    for round_ in range(6):
        with psycopg.connect(dsn, autocommit=True) as conn:
            for statement in _OF_EVERY_KIND:
                conn.execute(SQL(statement).format(first=10_000 * (round_ + 1)))
    assert shop.typed("drain", "--once", failpoint="drain.after_manifest")[0] == -9
    end = shop.chain().end
    stage.server.kill()
    stage.server.start()
    with psycopg.connect(dsn, autocommit=True) as conn:
        row = conn.execute("SELECT confirmed_flush_lsn::text FROM pg_replication_slots").fetchone()
    assert row is not None
    assert Lsn.parse(row[0]) < end
    stage.write(2, published=True)
    events: list[Event] = []
    drain(shop.config, "shop", Until.caught_up(), events.append)
    (compared,) = [event.fields["transactions"] for event in events if event.kind == "drain.history_checked"]
    assert compared > 0
    assert shop.chain().end > end
    with pytest.raises(SourceError, match="alive"):
        recover(shop.config, "shop")
