"""The processes of `make ui`: all end with the first of them, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from demo.processes import end, left_over_processes
from demo.server import free_port
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.load import load
from tests.support.ingest.fix_drain import wait_until
from tests.support.servers.fix_postgres import Database
from tests.support.shell.sample import password_of, write_source
from tests.support.shell.served_ui import ROOT

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
_REST = """\
    tables: [public.orders]
    compaction: {mode: scheduled}
"""
# `make` in small: it starts the command, and waits for it; in the background, where a shell ignores SIGINT.
_MAKE = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.exit(subprocess.call(sys.argv[1:]))
"""


@dataclass(frozen=True, slots=True)
class _Ui:
    """`make ui` with its drain at work: what stands for `make`, the terminal's text, and the folder of its processes."""

    make: subprocess.Popen[bytes]
    terminal: Path
    state: Path

    @property
    def script(self) -> int:
        """The process of the script that `make` has started."""
        (child,) = Path(f"/proc/{self.make.pid}/task/{self.make.pid}/children").read_text(encoding="utf-8").split()
        return int(child)

    def processes(self) -> list[int]:
        """All processes that the script has started, and theirs."""
        return left_over_processes(self.state)


@contextmanager
def _ui(database: Database, folder: Path) -> Iterator[_Ui]:
    config, port, terminal = write_source(folder, database, _REST), free_port(), folder / "terminal"
    bootstrap(load(config), "shop")
    home = folder / "home"
    environment = {**os.environ, "LAKEPROOF_CONFIG": str(config), "DAGSTER_HOME": str(home), "MAKELEVEL": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "scripts.ui", "--port", str(port)]
    with terminal.open("wb") as text:
        make = subprocess.Popen(
            [sys.executable, "-c", _MAKE, *command], cwd=ROOT, env=environment, stdout=text, stderr=text
        )
    ui = _Ui(make, terminal, home / f"ui-{port}")
    try:
        wait_until(lambda: make.poll() is not None or _is_read(database), timeout_s=240)
        assert make.poll() is None, terminal.read_text(encoding="utf-8")
        yield ui
    finally:
        make.kill()
        make.wait()
        end(ui.processes())


def _is_read(database: Database) -> bool:
    with psycopg.connect(database.dsn) as connection:
        rows = connection.execute("SELECT 1 FROM pg_replication_slots WHERE active").fetchall()
    return bool(rows)


@pytest.fixture
def orders(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A source with a table."""
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE orders")
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    return database


@pytest.mark.full
@pytest.mark.parametrize("ended", ["make", "script"])
def test_all_processes_end_with_the_first_that_is_killed(orders: Database, tmp_path: Path, ended: str) -> None:
    """No drain works on where no UI shows it, and the next one has its port."""
    with _ui(orders, tmp_path) as ui:
        assert len(ui.processes()) > 3
        os.kill(ui.make.pid if ended == "make" else ui.script, signal.SIGKILL)
        wait_until(lambda: not ui.processes(), timeout_s=120)
        assert not _is_read(orders)
