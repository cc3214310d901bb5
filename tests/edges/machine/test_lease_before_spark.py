"""A command that would only wait for another process's lease says so before it starts a JVM."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest

from lakeproof.cli import lake_commands
from lakeproof.cli.context import Context
from lakeproof.cli.interruption import Interruption
from lakeproof.cli.main import main
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.drain import drain
from lakeproof.compaction.pending import what_is_left
from lakeproof.config.load import load
from lakeproof.config.model import Config
from lakeproof.drain.until import Until
from lakeproof.errors import TransientError
from lakeproof.events import Stop, silent
from lakeproof.lake.records.lease import check_free, hold_lease
from lakeproof.storage.source_lake import SourceLake
from tests.support.servers.fix_postgres import Database
from tests.support.shell.sample import password_of, write_source

pytestmark = [pytest.mark.postgres]
_REST = "    tables: [public.orders]\n"


def test_a_held_lease_is_seen_before_spark_starts(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compaction, maintenance and proof end with the status for trying again; a follower's lease is as good as free."""
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE orders")
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    path = write_source(tmp_path, database, _REST)
    bootstrap(load(path), "shop")
    lake = SourceLake.open(load(path).location, "shop")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    holder = f": process {os.getpid()} on {socket.gethostname()} since "
    with lake.store.lock(lake.paths.lease_lock, "x", "x"):
        for command in ("compact", "maintain", "prove"):
            assert main(["--config", str(path), command, "shop"]) == TransientError.exit_status
            assert f"another process is writing to this source's lake{holder}" in capsys.readouterr().err
        with pytest.raises(TransientError, match=re.escape(holder)), hold_lease(lake):
            pass
        follower = lake.store.share_lock(lake.paths.follow_lock, 1.0)
        assert follower is not None
        check_free(lake)
        follower.release()
    check_free(lake)
    with lake.store.lock(lake.paths.proof_lock, "x", "x"):
        for command in ("maintain", "prove"):
            assert main(["--config", str(path), command, "shop"]) == TransientError.exit_status
            assert f"another process proves or maintains it{holder}" in capsys.readouterr().err


def test_a_compaction_that_was_stopped_with_more_to_do_says_what(database: Database, tmp_path: Path) -> None:
    """Its status is that of an interruption, also if a table is held: whoever calls it is to call it again."""
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE orders")
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source()})
    bootstrap(config, "shop")
    database.execute("INSERT INTO orders VALUES (1), (2)")
    drain(config, "shop", Until.caught_up())
    assert what_is_left(config, "shop") == "2 changes and 1 copied table"
    stop = Stop()
    context = Context("compact", None, False, silent, stop, Interruption(stop))
    context.__dict__["config"] = config
    assert lake_commands._compacted(context, "shop", []).status == 0
    stop.request()
    outcome = lake_commands._compacted(context, "shop", [])
    assert outcome.status == 3
    assert outcome.text.splitlines() == [
        "shop: no cycle has ended",
        "shop: stopped as asked; still to do: 2 changes and 1 copied table; run `lakeproof compact shop` again",
    ]
