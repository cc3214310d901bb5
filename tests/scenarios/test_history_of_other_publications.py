"""A landing that is compared with its server was read with other publications than there are now: its history is the same.

The slot is behind the landing in each case, so that the comparison is made. That another history is seen is in
`test_server_restored_past.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.drain import drain
from lakeproof.commands.recover import plan_recover
from lakeproof.commands.status import status
from lakeproof.config.model import Config
from lakeproof.drain.until import Until
from lakeproof.errors import SourceError
from lakeproof.failpoints import watched
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.proof_steps import table
from tests.support.servers.fix_postgres import Database, MakeServer

pytestmark = pytest.mark.postgres
_SECOND = "CREATE PUBLICATION pub_inserts FOR TABLE b WITH (publish = 'insert, truncate')"


class Killed(BaseException):
    """The end of the process."""


def _begun(database: Database, folder: Path, *, with_second: bool) -> Config:
    """A landing of table a, and of table b if the second publication is there from the beginning."""
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int)", "CREATE PUBLICATION pub FOR TABLE a"
    )
    if with_second:
        database.execute(_SECOND)
    config = Config(path=folder / "x.yaml", lake=str(folder / "lake"), sources={"shop": database.source()})
    bootstrap(config, "shop")
    drain(config, "shop", Until.caught_up())
    return config


def _killed_before_acknowledging(config: Config, position: Lsn) -> None:
    """Land up to a position or further: one manifest or more, the last one unacknowledged."""

    def passing(name: str) -> None:
        if name == "drain.after_manifest" and _chain(config).end >= position:
            raise Killed

    with pytest.raises(Killed), watched(passing):
        drain(config, "shop", Until.caught_up())


def _chain(config: Config) -> Chain:
    return Chain.open(SourceLake.open(config.location, "shop"), Incarnation(1))


def _goes_on(config: Config) -> None:
    """Each command that compares the histories finds the same one."""
    assert not status(config).problems
    with pytest.raises(SourceError, match="there is nothing to recover"):
        plan_recover(config, "shop")
    bootstrap(config, "shop", [table("a")])
    drain(config, "shop", Until.caught_up())
    chain = _chain(config)
    assert not chain.lake.store.list(chain.lake.paths.stuck(chain.incarnation, chain.end).rpartition("/")[0])


def test_a_publication_was_dropped_behind_the_landing(database: Database, tmp_path: Path) -> None:
    """The server has no row of it any more that it would send; seen once as a server that was restored."""
    config = _begun(database, tmp_path, with_second=True)
    database.execute("INSERT INTO b VALUES (1)")
    _killed_before_acknowledging(config, Lsn.ZERO)
    database.execute("DROP PUBLICATION pub_inserts")
    _goes_on(config)


def test_a_publication_was_created_before_the_landing_s_end(database: Database, tmp_path: Path) -> None:
    """The landing was read past rows that the server would send by now."""
    config = _begun(database, tmp_path, with_second=False)
    database.execute("INSERT INTO a VALUES (1)", _SECOND, "INSERT INTO b VALUES (1)")
    _killed_before_acknowledging(config, database.end_of_flushed_wal())
    _goes_on(config)


def test_the_second_publication_was_read_only_later_on(make_server: MakeServer, tmp_path: Path) -> None:
    """A crash of the server puts the slot back to before what was read with one publication alone."""
    with make_server(conf={"fsync": "off"}) as server:
        database = Database(server, "two", make_conninfo(server.dsn()))
        config = _begun(database, tmp_path, with_second=False)
        database.execute("CHECKPOINT")
        database.execute("INSERT INTO a VALUES (1)", _SECOND, "INSERT INTO b VALUES (1)")
        for _ in range(2):
            drain(config, "shop", Until.caught_up())
        server.kill()
        server.start()
        _goes_on(config)
