"""Runs lakeproof on the loaded database as a user runs it: commands of its command line, each a process of its own.

The load does not belong here (`load_workload.py`), nor what is read from outside while it runs (`load_samples.py`).
Compaction is `compact --follow`: cycles without a pause between them in one process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import psycopg

from bench.processes import Tree
from demo.server import EmbeddedPostgres
from lakeproof.lake.records.store import newest_cut
from lakeproof.lsn import Lsn
from lakeproof.storage.source_lake import SourceLake

NAME = "load"
_ROOT = Path(__file__).resolve().parents[2]
_PASSWORD = "LAKEPROOF_BENCH_PASSWORD"  # noqa: S105  the name of a variable
_PATIENCE_S = 3600.0
_CONFIG = """
lake: {lake}
sources:
  {name}:
    dsn: host=127.0.0.1 port={port} dbname={database} user=postgres
    password: {{env: {password}}}
    publication: {name}
    slot: {name}
spark:
  driver_memory: {memory}
"""


@dataclass
class Pipeline:
    """One source's lake in `folder`, and the processes that serve it."""

    server: EmbeddedPostgres
    database: str
    folder: Path
    memory: str
    _children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __enter__(self) -> Pipeline:
        with psycopg.connect(self.server.dsn(self.database), autocommit=True) as conn:
            conn.execute("CREATE PUBLICATION load FOR ALL TABLES")
        text = _CONFIG.format(
            lake=self.lake_folder,
            name=NAME,
            port=self.server.port,
            database=self.database,
            password=_PASSWORD,
            memory=self.memory,
        )
        self._config.write_text(text, encoding="utf-8")
        return self

    @property
    def lake_folder(self) -> Path:
        """The folder of the lake."""
        return self.folder / "lake"

    @property
    def lake(self) -> SourceLake:
        """The source's part of the lake."""
        return SourceLake.open(str(self.lake_folder), NAME)

    @property
    def _config(self) -> Path:
        return self.folder / "lakeproof.yaml"

    def start(self) -> dict[str, Tree]:
        """Copy the tables, then start drain and compaction; return their processes."""
        status, text = self.command("bootstrap")
        if status:
            raise SystemExit(f"not all tables were copied: {text}")
        self._spawn("drain", ["lakeproof", "-c", str(self._config), "drain"])
        self._spawn("compaction", ["lakeproof", "-c", str(self._config), "compact", "--follow"])
        return {name: Tree(child.pid) for name, child in self._children.items()}

    def command(self, name: str) -> tuple[int, str]:
        """Run a command of the command line to its end; return its status, 0 or 1, and what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "lakeproof", "-c", str(self._config), name],
            cwd=_ROOT,
            env=self._environment,
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode not in {0, 1}:
            raise SystemExit(f"lakeproof {name} ended with status {done.returncode}: {done.stderr[-800:]}")
        return done.returncode, done.stdout

    def check(self) -> None:
        """Raise SystemExit if drain or compaction has ended by itself."""
        for name, child in self._children.items():
            if child.poll() is not None:
                raise SystemExit(f"{name} ended with status {child.returncode}: {self._errors(name)}")

    def wait_for(self, position: Lsn) -> None:
        """Wait until a cut is at or past the position."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            self.check()
            cut = newest_cut(self.lake)
            if cut is not None and cut.position >= position:
                return
            time.sleep(0.2)
        raise SystemExit(f"no cut was at {position} after {_PATIENCE_S:.0f} s")

    def end_of_load(self) -> Lsn:
        """Return a position after all commits so far, and commit once more, so that the stream goes past it at once."""
        with psycopg.connect(self.server.dsn(self.database), autocommit=True) as conn:
            row = conn.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            conn.execute("UPDATE warehouse SET w_ytd = w_ytd + 1 WHERE w_id = 1")
        if row is None:
            raise SystemExit("the server returned no position; run it again")
        return Lsn.parse(row[0])

    def stop(self) -> None:
        """End compaction, then the drain, each when its work in hand is done."""
        for name in ("compaction", "drain"):
            child = self._children.pop(name, None)
            if child is not None and child.poll() is None:
                child.send_signal(signal.SIGTERM)
                try:
                    child.wait(300)
                except subprocess.TimeoutExpired:
                    # Nothing is lost by it: the next run finishes what it left.
                    child.kill()
                    child.wait()

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, _PASSWORD: self.server.password}

    def _spawn(self, name: str, arguments: list[str]) -> None:
        with (self.folder / f"{name}.out").open("wb") as out, (self.folder / f"{name}.err").open("wb") as errors:
            self._children[name] = subprocess.Popen(
                [sys.executable, "-m", *arguments], cwd=_ROOT, env=self._environment, stdout=out, stderr=errors
            )

    def _errors(self, name: str) -> str:
        return (self.folder / f"{name}.err").read_text(encoding="utf-8", errors="replace")[-800:]
