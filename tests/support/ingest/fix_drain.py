"""A landing to drain into, and an independent reading of what was landed.

The server comes from `fix_postgres.py`. The folding here is plain Python over the Parquet files, one row after the other,
so that it shares nothing with the engine's own net change.
"""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from pydantic import SecretStr
from typing_extensions import LiteralString

from lakeproof.commands.drain import drain
from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config, DrainConfig, SourceConfig
from lakeproof.drain.counts import DrainReport
from lakeproof.drain.until import Until
from lakeproof.landing.catalog_history import first_reading
from lakeproof.landing.catalog_record import FirstReading
from lakeproof.landing.chain import Chain, NewHead
from lakeproof.landing.segments.file_columns import file_names
from lakeproof.landing.segments.manifest import ChainSource
from lakeproof.landing.segments.reader import open_file, verify_files
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.postgres.catalog.fingerprint import CommitVisibility, observe_catalog
from lakeproof.postgres.connections.connect import connect
from lakeproof.postgres.server import identify
from lakeproof.schema import SchemaVersion
from lakeproof.storage.source_lake import SourceLake
from tests.support.ingest.forked import Forked
from tests.support.servers.fix_postgres import Database
from tests.support.servers.slots import create_slot

SOURCE = "shop"
Row = tuple[Any, ...]


def make_config(dsn: str, lake: Path | LakeLocation, slot: str, **drain: Any) -> Config:
    """A configuration with one source, called `shop`, whose publication has that name too."""
    source = SourceConfig(name=SOURCE, dsn=SecretStr(dsn), publication=SOURCE, slot=slot, drain=DrainConfig(**drain))
    folder = lake if isinstance(lake, Path) else Path.cwd()
    place = LakeLocation.of(lake)
    return Config(path=folder / "lakeproof.yaml", lake=place.url, storage=place.storage, sources={SOURCE: source})


@dataclass(frozen=True)
class Drained:
    """A database with a publication for all its tables, a slot, and a landing that begins at the slot's point."""

    database: Database
    lake: Path
    # An object store in place of the folder.
    location: LakeLocation | None = None

    @property
    def dsn(self) -> str:
        """A superuser's."""
        return self.database.dsn

    @property
    def slot(self) -> str:
        """The slot's name."""
        return self.database.name

    def config(self, **limits: Any) -> Config:
        """The configuration, with other limits if given."""
        return make_config(self.dsn, self.location or self.lake, self.slot, **limits)

    def drain(self, until: Until | None = None, **limits: Any) -> DrainReport:
        """Drain in this process; up to now, if nothing else is given."""
        return drain(self.config(**limits), SOURCE, until or Until.caught_up())

    def confirmed_flush(self) -> Lsn:
        """The position that the slot has confirmed."""
        query: LiteralString = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
        return Lsn.parse(self.database.value(query, [self.slot]))

    def active_pid(self) -> int | None:
        """Return the process that holds the slot."""
        pids = self.database.rows("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", [self.slot])
        return pids[0][0] if pids else None

    def begin(self) -> Lsn:
        """Make the lasting slot and the chain's head at its consistent point, which is returned.

        The head's reading of the catalog is made right after the slot: nothing else may be altering it.
        """
        writer = secrets.token_hex(16)
        incarnation = Incarnation(1)
        start = create_slot(SecretStr(self.dsn), self.slot)
        with connect(SecretStr(self.dsn)) as catalog:
            server = identify(catalog)
            reading = observe_catalog(catalog, [SOURCE], CommitVisibility(Lsn.ZERO))
        rules = dict.fromkeys(reading.rules, reading.horizon)
        whole = FirstReading(reading.fingerprint, reading.lower_lsn, reading.upper_lsn, rules)
        first = first_reading(self.source_lake, incarnation, whole, writer)
        head = ChainSource(
            server.system_id, server.timeline, server.database, server.database_oid, self.slot, SOURCE, server.version
        )
        Chain.create(self.source_lake, incarnation, NewHead(start, head, writer, first))
        return start

    def chain(self) -> Chain:
        """The landing as it is now."""
        return Chain.open(self.source_lake, Incarnation(1))

    def folded(self) -> dict[TableName, list[Row]]:
        """The rows that the landing adds up to, per table."""
        return fold(landed_rows(self.chain()))

    def source_rows(self, table: TableName, columns: LiteralString = "*") -> list[Row]:
        """The table as PostgreSQL has it, in the order of `folded`."""
        with psycopg.connect(self.dsn, options="-c TimeZone=UTC") as conn:
            query = SQL("SELECT {} FROM {}").format(SQL(columns), Identifier(table.schema, table.name))
            return sorted(conn.execute(query).fetchall(), key=repr)

    def start_process(self, until: str, failpoint: str = "", **limits: Any) -> Forked:
        """A drain in its own process, by `drain_process.py`; its result is the last line of its output."""
        given: dict[str, Any] = {
            "dsn": self.dsn,
            "lake": str(self.lake),
            "slot": self.slot,
            "drain": limits,
            "until": until,
        }
        if self.location is not None:
            given |= {"lake": self.location.url, "storage": self.location.storage.model_dump()}
        from tests.support.ingest.drain_process import run

        return Forked(run, given, failpoint=failpoint)

    @contextmanager
    def running(self, until: str, failpoint: str = "", **limits: Any) -> Iterator[Forked]:
        """Start the process; kill it at the end of the block if it still runs."""
        process = self.start_process(until, failpoint, **limits)
        try:
            yield process
        finally:
            process.kill()
            # If it has failed, pytest shows what the drain printed.
            sys.stderr.write(process.communicate()[1] or "")

    @property
    def source_lake(self) -> SourceLake:
        """The source's part of the lake."""
        return SourceLake.open(self.location or self.lake, SOURCE)


@pytest.fixture
def drained(database: Database, tmp_path: Path) -> Drained:
    """A new database with a publication for all its tables; `begin` makes slot and landing."""
    database.execute("CREATE PUBLICATION shop FOR ALL TABLES")
    return Drained(database, tmp_path / "lake")


def landed_rows(chain: Chain) -> list[tuple[SchemaVersion, dict[str, Any]]]:
    """Every landed row with its table's schema, in stream order; checks positions, ordinals and checksums on the way."""
    versions: dict[str, SchemaVersion] = {}
    actual: list[tuple[SchemaVersion, dict[str, Any]]] = []
    for manifest in chain.manifests():
        verify_files(chain, manifest)
        versions |= {entry.version.id: entry.version for entry in manifest.schemas}
        rows: list[tuple[SchemaVersion, dict[str, Any]]] = []
        for file in manifest.files:
            with open_file(chain, file) as opened:
                table = opened.read()
            assert table.num_rows == file.rows
            rows += [(versions[file.schema_id], row) for row in table.to_pylist()]
        rows.sort(key=lambda r: r[1]["_lp_ord"])
        assert [r["_lp_ord"] - manifest.first_ordinal for _, r in rows] == list(range(manifest.rows))
        places = [(r["_lp_lsn"], r["_lp_seq"]) for _, r in rows]
        assert places == sorted(places)
        assert all(manifest.start_lsn.value < lsn <= manifest.end_lsn.value for lsn, _ in places)
        actual += rows
    return actual


def own_values(version: SchemaVersion, row: dict[str, Any]) -> Row:
    """Return the values of a landed row's own columns, in order."""
    return tuple(row[name] for name in file_names(version))


def fold(rows: list[tuple[SchemaVersion, dict[str, Any]]]) -> dict[TableName, list[Row]]:
    """Add the changes up, per table: the rows in the order of their key, or of themselves if there is none."""
    tables: dict[TableName, dict[Any, Row]] = {}
    moved: dict[TableName, Row] = {}
    for version, row in rows:
        table = tables.setdefault(version.table, {})
        values = own_values(version, row)
        key = tuple(v for c, v in zip(version.columns, values, strict=True) if c.name in version.key)
        match row["_lp_op"]:
            case "insert":
                table[key or len(table)] = values
            case "before":
                moved[version.table] = table.pop(key)
            case "update":
                old = moved.pop(version.table, None) or table[key]
                kept = row["_lp_unchanged"] or []
                table[key] = tuple(old[i] if i in kept else v for i, v in enumerate(values))
            case "delete":
                del table[key]
            case "truncate":
                table.clear()
            case other:
                raise AssertionError(other)
    return {name: sorted(table.values(), key=repr) for name, table in tables.items()}


def told_to_stop(process: Forked, timeout_s: float = 120.0) -> str:
    """Send SIGTERM, let the drain end in order, and return its events."""
    process.terminate()
    try:
        _, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        # Its threads' stacks go to its output, which is shown when it is killed.
        process.send_signal(signal.SIGUSR1)
        time.sleep(1.0)
        raise
    assert process.returncode == 0, err
    return err


def wait_until(condition: Callable[[], bool], timeout_s: float = 90.0) -> None:
    """Look every 20 ms until it holds; fails after `timeout_s` seconds.

    The limit is for a machine ten times too busy, where a process takes half a minute to start; nobody else waits for it.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.02)
