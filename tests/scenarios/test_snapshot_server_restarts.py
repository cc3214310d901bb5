"""The server shuts down, or crashes, while a snapshot is copied, and comes back: one clear error, and the next run goes on.

What counted before counts afterwards; temporary slots are gone, the lasting one is there.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.model import Config, SnapshotConfig
from lakeproof.errors import TransientError
from lakeproof.events import Event
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import SOURCE, Drained, wait_until
from tests.support.ingest.snapshot_rows import copied_and_landed
from tests.support.servers.fix_postgres import MakeServer, new_database

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.full]
BIG, SMALL = TableName("public", "big"), TableName("public", "small")


@pytest.fixture
def state() -> Iterator[Path]:
    """A cluster's folder that an unprivileged server can reach (pytest's own are private) and that a stop leaves."""
    folder = Path(tempfile.mkdtemp(prefix="lakeproof-restart-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _config(shop: Drained, bytes_per_s: int) -> Config:
    config = shop.config()
    settings = SnapshotConfig(connections=2, chunk_pages=50, bytes_per_s=bytes_per_s)
    source = config.sources[SOURCE].model_copy(update={"snapshot": settings})
    return config.model_copy(update={"sources": {SOURCE: source}})


class _Copying(threading.Thread):
    """A bootstrap beside the test; `counted` says that a table counts, `error` is what it ended with."""

    def __init__(self, config: Config, *, again: bool) -> None:
        super().__init__()
        self.counted = threading.Event()
        self.error: BaseException | None = None
        self._config = config
        self._again = again

    def run(self) -> None:
        try:
            bootstrap(self._config, SOURCE, None, self._report, again=self._again)
        except BaseException as error:  # noqa: BLE001  looked at in the test's thread
            self.error = error

    def _report(self, event: Event) -> None:
        if event.kind == "bootstrap.table":
            self.counted.set()


@pytest.mark.parametrize("crashes", [False, True], ids=["shut down", "crashed"])
def test_finished_tables_stay_and_the_next_run_copies_the_others(
    make_server: MakeServer, state: Path, tmp_path: Path, crashes: bool
) -> None:
    """Covers the first snapshot, and a later one by a temporary slot."""
    with make_server(state=state / "pg") as server, new_database(server) as database:
        database.execute(
            "CREATE TABLE small (id int PRIMARY KEY, v text) WITH (autovacuum_enabled = off)",
            "INSERT INTO small SELECT g, repeat('v', 1000) FROM generate_series(1, 6000) g",
            "DELETE FROM small WHERE id > 50",
            "CREATE TABLE big (id int PRIMARY KEY, v text)",
            "INSERT INTO big SELECT g, repeat('v', 1000) FROM generate_series(1, 4000) g",
            "CREATE PUBLICATION shop FOR ALL TABLES",
        )
        shop = Drained(database, tmp_path / "lake")
        for again in (False, True):
            copying = _Copying(_config(shop, 800_000), again=again)
            copying.start()
            wait_until(copying.counted.is_set, 60)
            server.kill() if crashes else server.stop()
            copying.join(120)
            assert isinstance(copying.error, TransientError)
            server.start()
            assert database.slots() == {shop.slot}
            database.execute("UPDATE big SET v = 'new' WHERE id % 100 = 0", "DELETE FROM small WHERE id = 7")
            result = bootstrap(_config(shop, 0), SOURCE)
            assert (set(result.tables), set(result.kept)) == ({BIG}, {SMALL})
            shop.drain()
            for table in (BIG, SMALL):
                assert copied_and_landed(shop, table) == shop.source_rows(table)
