"""The server shuts down fast while a drain is connected, and comes back: it is not kept waiting, and nothing is lost.

A fast shutdown waits for our acknowledgement of everything sent; a drain that answered its pings with an old position would
block it for as long as it liked.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeproof.names import TableName
from tests.support.ingest.fix_drain import Drained, wait_until
from tests.support.servers.fix_postgres import MakeServer, new_database

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
ITEMS = TableName("public", "items")
# Above what a shared test machine takes for a checkpoint; a blocked shutdown takes wal_sender_timeout, 60 s, or more.
SHUTDOWN_MAX_S = 30.0


@pytest.fixture
def state() -> Iterator[Path]:
    """A cluster's folder that an unprivileged server can reach (pytest's own are private) and that a stop leaves."""
    folder = Path(tempfile.mkdtemp(prefix="lakeproof-restart-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_a_fast_shutdown_is_acknowledged_at_once_and_the_drain_goes_on_afterwards(
    make_server: MakeServer, state: Path, tmp_path: Path
) -> None:
    """The flush interval is ten minutes: the server's pings end the segment."""
    with make_server(state=state / "pg") as server, new_database(server) as database:
        database.execute("CREATE PUBLICATION shop FOR ALL TABLES", "CREATE TABLE items (id int PRIMARY KEY)")
        drained = Drained(database, tmp_path / "lake")
        drained.begin()
        process = drained.start_process("stopped", flush_rows=50, flush_interval_s=600.0, progress_interval_s=600.0)
        try:
            wait_until(lambda: drained.active_pid() is not None)
            # The table's schema must be known: nobody can ask the catalog of a server that is shutting down.
            database.execute("INSERT INTO items SELECT generate_series(1, 60)")
            wait_until(lambda: len(drained.folded().get(ITEMS, [])) == 60)
            database.execute("INSERT INTO items SELECT generate_series(61, 70)")
            begun = time.monotonic()
            server.stop()
            assert time.monotonic() - begun < SHUTDOWN_MAX_S
            assert len(drained.folded()[ITEMS]) == 70
            server.start()
            wait_until(lambda: drained.active_pid() is not None, timeout_s=60)
            database.execute("INSERT INTO items SELECT generate_series(71, 80)")
            process.terminate()
            _, err = process.communicate(timeout=180)
            assert process.returncode == 0, err
        finally:
            process.kill()
            process.communicate()
        drained.drain()
        assert drained.folded()[ITEMS] == drained.source_rows(ITEMS)
