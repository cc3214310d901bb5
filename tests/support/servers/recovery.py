"""A small shop with a lake, whose slot is going to be lost: what is needed to follow it into another incarnation.

Servers come from `fix_postgres.py`; the comparison with the lake is `compare.py`'s, which shares nothing with the engine.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.sql import SQL, Composed
from pydantic import SecretStr
from pyspark.sql import SparkSession
from typing_extensions import LiteralString

from demo.server import EmbeddedPostgres, unprivileged_user
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.config.model import Config, SourceConfig, ViewConfig
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.lake.cycle.runner import CutReport
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.store import newest_cut
from lakeproof.landing.chain import Chain
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from tests.support.ingest.typed_process import typed
from tests.support.lake.compare import Rows, lake_rows, source_rows, table_columns
from tests.support.servers.fix_postgres import Database

ITEMS, LOG = TableName("public", "items"), TableName("public", "log")
TABLES = (ITEMS, LOG)
SCHEMA = (
    "CREATE TABLE items (id int PRIMARY KEY, note text)",
    "CREATE TABLE log (at int, what text)",
    "ALTER TABLE log REPLICA IDENTITY FULL",
    "CREATE PUBLICATION pub FOR TABLE items, log",
)
REPOSITORY = Path(__file__).parents[3]


@dataclass
class Shop:
    """A source with a keyed table and a bag, and its lake."""

    dsn: str
    slot: str
    lake: Path
    view: Path | None = None

    @classmethod
    def of(cls, database: Database, lake: Path) -> Shop:
        """Return a source on a database of the run's server."""
        return cls(database.dsn, database.name, lake)

    @property
    def config(self) -> Config:
        """Return a configuration with one source, called shop."""
        source = SourceConfig(name="shop", dsn=SecretStr(self.dsn), publication="pub", slot=self.slot, buckets=16)
        views = {}
        if self.view is not None:
            views["notes"] = ViewConfig(name="notes", sql_file=self.view, reads={"items": ("shop", ITEMS)})
        return Config(path=self.lake / "w.yaml", lake=str(self.lake), sources={"shop": source}, views=views)

    @property
    def source_lake(self) -> SourceLake:
        """Return the paths of the source."""
        return SourceLake.open(str(self.lake), "shop")

    def begin(self) -> None:
        """Tables with rows, and the first snapshot."""
        self.execute(
            *SCHEMA,
            "INSERT INTO items SELECT g, 'n' || g FROM generate_series(1, 20) g",
            "INSERT INTO log SELECT g % 3, 'x' FROM generate_series(1, 9) g",
        )
        bootstrap(self.config, "shop")

    def execute(self, *statements: LiteralString | SQL | Composed) -> None:
        """Run the statements, each in a separate transaction."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            for statement in statements:
                conn.execute(statement)

    def change(self, first: int) -> None:
        """Inserts, an update, a key move and deletes in both tables."""
        statements: tuple[LiteralString, ...] = (
            "INSERT INTO items SELECT g, 'added' FROM generate_series({first}, {first} + 4) g",
            "UPDATE items SET note = 'changed at ' || {first} WHERE id % 4 = 0",
            "UPDATE items SET id = {first} + 50 WHERE id = (SELECT min(id) FROM items)",
            "DELETE FROM items WHERE id = (SELECT min(id) FROM items)",
            "INSERT INTO log VALUES ({first}, 'y'), ({first}, 'y')",
            "DELETE FROM log WHERE ctid = (SELECT min(ctid) FROM log)",
        )
        self.execute(*(SQL(statement).format(first=first) for statement in statements))

    def drain(self) -> None:
        """Drain all waiting changes."""
        drain(self.config, "shop", Until.caught_up())

    def compact(self, spark: SparkSession) -> list[CutReport]:
        """Compact until nothing is left to do."""
        return compact(self.config, "shop", spark, silent, Stop())

    def chain(self) -> Chain:
        """The newest incarnation's."""
        actual = Chain.open_newest(self.source_lake)
        assert actual is not None
        return actual

    def cut(self) -> Cut:
        """The newest."""
        actual = newest_cut(self.source_lake)
        assert actual is not None
        return actual

    def source_rows(self) -> Mapping[TableName, Rows]:
        """PostgreSQL's rows."""
        return source_rows(self.dsn, TABLES)

    def lake_rows(self) -> Mapping[TableName, Rows]:
        """The newest cut's rows."""
        cut, actual = self.cut(), {}
        assert not cut.held
        for table in TABLES:
            assert cut.tables[table].at_lsn == cut.position
            columns, attnums = table_columns(self.dsn, table)
            path = Path(self.source_lake.url(self.source_lake.paths.current(table)))
            actual[table] = lake_rows(path, cut.tables[table].current_version, columns, attnums)
        return actual

    def history(self, spark: SparkSession, table: TableName) -> list[Any]:
        """Return all rows of history in their order."""
        path = self.source_lake.url(self.source_lake.paths.history(table))
        return list(spark.read.format("delta").load(path).orderBy("_lp_ord").collect())

    def typed(self, command: str, *arguments: str, failpoint: str = "") -> tuple[int, str, str]:
        """Run `lakeproof COMMAND shop` in a process that may be killed at a place; return its status and what it printed."""
        file = self.lake.with_suffix(".yaml")
        document = {
            "lake": str(self.lake),
            "sources": {"shop": {"dsn": {"env": "SHOP_DSN"}, "publication": "pub", "slot": self.slot}},
        }
        file.write_text(json.dumps(document), encoding="utf-8")
        process = typed("-c", str(file), command, "shop", *arguments, failpoint=failpoint, SHOP_DSN=self.dsn)
        output, errors = process.communicate(120)
        return process.wait(), output, errors


def save_files(server: EmbeddedPostgres) -> None:
    """A cold backup of a halted server: its files beside them."""
    _copy(server.data, server.root / "saved")


def restore_files(server: EmbeddedPostgres) -> None:
    """Put the files of `save_files` back under a halted server."""
    shutil.rmtree(server.data)
    _copy(server.root / "saved", server.data)


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target)
    user = unprivileged_user()
    if user is not None:
        for path in [target, *target.rglob("*")]:
            os.chown(path, user.pw_uid, user.pw_gid)
