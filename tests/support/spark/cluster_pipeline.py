"""A lake on S3 that commands of their own process write by a standalone cluster: its configuration, commands and comparison.

The cluster belongs to `fix_cluster.py`, the store to `fix_object_store.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL

from lakeproof.config.load import load
from lakeproof.config.model import Config
from lakeproof.lake.records.store import newest_cut
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.compare import Rows, lake_rows, source_rows, table_columns
from tests.support.servers.fix_postgres import Database
from tests.support.spark.fix_cluster import EXECUTOR_MEMORY, Cluster
from tests.support.spark.fix_lake import SPARK
from tests.support.stores.fix_object_store import S3Server
from tests.support.stores.object_signing import REGION

ITEMS, LOG, NOTES = (TableName("public", name) for name in ("items", "log", "notes"))
TABLES = (ITEMS, LOG, NOTES)
_ROOT = Path(__file__).resolve().parents[3]
_TIMEOUT_S = 900.0
_POLL_S = 0.02
_SECRET = "LP_TEST_CLUSTER_PASSWORD"  # the variable's name
_COMMAND = "import sys; from lakeproof.cli.main import main; sys.exit(main())"
_CHANGES = (
    "INSERT INTO items SELECT n, 7, md5(n::text) || md5(n + 1 || '') FROM generate_series({first}, {first} + {rows}) n",
    "UPDATE items SET price = price + 1 WHERE id % 97 = {first} % 97",
    "UPDATE items SET id = -id WHERE id = {first} + 3",
    "DELETE FROM items WHERE id % 89 = {first} % 89",
    "UPDATE notes SET seen = true WHERE id % 3 = {first} % 3",
    "DELETE FROM log WHERE ctid IN (SELECT ctid FROM log LIMIT 3)",
    "INSERT INTO log VALUES (1, 'y'), (1, 'y')",
)


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    status: int
    out: str
    err: str
    killed: bool


@dataclass(frozen=True)
class Pipeline:
    """A source, its lake and the file that configures both."""

    database: Database
    cluster: Cluster
    file: Path

    @property
    def config(self) -> Config:
        """The configuration."""
        return load(self.file)

    def change(self, first: int, rows: int = 2_000) -> None:
        """Transactions of every kind of change, and a file most of whose rows are new."""
        self.database.execute(*(SQL(text).format(first=first, rows=rows) for text in _CHANGES))

    def run(self, *words: str, kill: tuple[str, int] | None = None) -> Done:
        """Run one command. `kill`: a worker goes, with its executors, once they have begun as many tasks; another comes."""
        folder = self.file.parent / "driver"
        folder.mkdir(mode=0o700, exist_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _COMMAND, "-c", str(self.file), *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(_ROOT), "TMPDIR": str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            killed = kill is not None and self._kill(process, *kill)
            out, err = process.communicate(timeout=_TIMEOUT_S)
        finally:
            process.kill()
        return Done(process.returncode, out, err, killed)

    def in_lake(self) -> Mapping[TableName, Rows]:
        """The newest cut's rows, read by delta-rs."""
        config = self.config
        lake = SourceLake.open(config.location, "shop")
        cut = newest_cut(lake)
        assert cut is not None
        assert not cut.held
        options = {"aws_endpoint_url": str(config.storage.endpoint), "aws_region": REGION, "aws_allow_http": "true"}
        actual = {}
        for table in TABLES:
            columns, attnums = table_columns(self.database.dsn, table)
            place = lake.url(lake.paths.current(table))
            actual[table] = lake_rows(place, cut.tables[table].current_version, columns, attnums, options)
        return actual

    def is_the_source(self) -> bool:
        """True if the lake's newest cut has exactly the source's rows."""
        return self.in_lake() == source_rows(self.database.dsn, TABLES)

    def _kill(self, process: subprocess.Popen[str], worker: str, tasks: int) -> bool:
        deadline = time.monotonic() + _TIMEOUT_S
        already = self.cluster.tasks(worker)
        while self.cluster.tasks(worker) < already + tasks:
            if process.poll() is not None:
                return False
            assert time.monotonic() < deadline
            time.sleep(_POLL_S)
        self.cluster.kill(worker)
        self.cluster.start_worker(worker)
        return True


def new_pipeline(database: Database, cluster: Cluster, server: S3Server, bucket: str, folder: Path) -> Pipeline:
    """A table with a key, one with large values, and one without a key; a view over the first."""
    database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, price numeric(10, 2), code text, at timestamptz DEFAULT now())",
        "CREATE TABLE log (n int, what text)",
        "ALTER TABLE log REPLICA IDENTITY FULL",
        "CREATE TABLE notes (id bigint PRIMARY KEY, body text, seen bool)",
        "ALTER TABLE notes ALTER body SET STORAGE EXTERNAL",
        "INSERT INTO items SELECT n, n * 1.5, md5(n::text) FROM generate_series(1, 2000) n",
        "INSERT INTO log SELECT n % 7, 'x' FROM generate_series(1, 50) n",
        "INSERT INTO notes SELECT n, repeat(md5(n::text), 200), false FROM generate_series(1, 20) n",
        "CREATE PUBLICATION pub FOR TABLE items, log, notes",
    )
    parts = conninfo_to_dict(database.dsn)
    os.environ[_SECRET] = str(parts.pop("password"))
    (folder / "dear.sql").write_text("SELECT id, price FROM items WHERE price > 100", encoding="utf-8")
    (folder / "secret").write_text(cluster.secret, encoding="utf-8")
    conf = {
        # As in production, the number of a shuffle's parts follows the cluster, and plans what comes.
        **{
            k: v
            for k, v in SPARK.conf.items()
            if k not in ("spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled")
        },
        "spark.cores.max": "2",
        "spark.executor.memory": EXECUTOR_MEMORY,
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    document = {
        "lake": f"s3://{bucket}/data/lake",
        "storage": {"endpoint": server.endpoint, "region": REGION, "allow_http": True},
        "sources": {
            "shop": {
                "dsn": make_conninfo("", **parts),
                "password": {"env": _SECRET},
                "publication": "pub",
                "slot": database.name,
                "buckets": 8,
                "tables": [str(table) for table in TABLES],
                "retention": {"cuts_s": 0, "landing_s": 0, "small_files": 2},
            }
        },
        "views": {"dear": {"sql": "dear.sql", "reads": {"items": "shop/public.items"}}},
        "spark": {"master": cluster.master, "driver_memory": "1g", "secret": {"file": "secret"}, "conf": conf},
    }
    file = folder / "lakeproof.yaml"
    # JSON is YAML.
    file.write_text(json.dumps(document), encoding="utf-8")
    return Pipeline(database, cluster, file)
