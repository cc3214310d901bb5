"""A command that would only wait for another process's lease says so before it starts a JVM."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from lakeproof.cli.main import main
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.load import load
from lakeproof.errors import TransientError
from lakeproof.lake.records.lease import check_free
from lakeproof.storage.source_lake import SourceLake
from tests.fix_postgres import Database
from tests.shell.sample import password_of, write_source

pytestmark = [pytest.mark.postgres]
_REST = "    tables: [public.orders]\n"


def _no_session(*_arguments: object) -> NoReturn:
    pytest.fail("a JVM was to be started")


def test_a_held_lease_is_seen_before_spark_starts(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compaction, maintenance and proof end with the status for trying again; a follower's lease is as good as free."""
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE orders")
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    path = write_source(tmp_path, database, _REST)
    bootstrap(load(path), "shop")
    lake = SourceLake.open(load(path).location, "shop")
    monkeypatch.setattr("lakeproof.lake.spark.session.session", _no_session)  # inside: a JVM would show nothing of this
    with lake.store.lock(lake.paths.lease_lock, "x", "x"):
        for command in ("compact", "maintain"):
            assert main(["--config", str(path), command, "shop"]) == TransientError.exit_status
            assert "another process is writing to this source's lake" in capsys.readouterr().err
        follower = lake.store.share_lock(lake.paths.follow_lock, 1.0)
        assert follower is not None
        check_free(lake)
        follower.release()
    check_free(lake)
    with lake.store.lock(lake.paths.proof_lock, "x", "x"):
        for command in ("maintain", "prove"):
            assert main(["--config", str(path), command, "shop"]) == TransientError.exit_status
            assert "another process proves or maintains it" in capsys.readouterr().err
