"""An application beside its lake: a drain runs while its tables change, and every table is compared at one position.

Nothing here needs a JVM. Schemas are for the modules named after them, rows for `mutator.py`, DDL for `alterations.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.config.model import Config
from lakeproof.errors import ConfigError
from lakeproof.events import Stop, silent
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.held import Held
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.landing.catalog_history import newest_catalog
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.state.due_copies import recopy
from lakeproof.storage.source_lake import SourceLake
from tests.applications.mutator import Mutator
from tests.support.ingest.fix_drain import SOURCE, Drained, wait_until
from tests.support.lake.compare import Rows, current_lsn, lake_rows, rows_of, source_rows, table_columns
from tests.support.servers.fix_postgres import Database

_LIMITS: dict[str, Any] = {"catalog_interval_s": 0.5, "progress_interval_s": 0.2, "flush_interval_s": 0.1}
_PATIENCE_S = 120.0
_NOTICED_S = 10.0
_PUBLISHED = """
SELECT p.schemaname, p.tablename, array_agg(a.attname::text) FROM pg_publication_tables p
JOIN pg_attribute a ON a.attrelid = format('%I.%I', p.schemaname, p.tablename)::regclass
    AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
WHERE p.pubname = 'shop' GROUP BY 1, 2
"""


def _no_jvm() -> SparkSession:
    raise ConfigError("Spark", "none is here", "run this test with one")


@dataclass
class Application:
    """A database with a mutator over its tables, and its lake; `spark` is for copies of tables that the lake has."""

    database: Database
    folder: Path
    seed: int
    spark: SparkOnDemand = field(default_factory=lambda: SparkOnDemand(_no_jvm))
    mutator: Mutator = field(init=False)
    given_up: set[TableName] = field(default_factory=set)
    held: dict[TableName, Held] = field(default_factory=dict)
    _equal: dict[TableName, tuple[int, Rows]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.drained = Drained(self.database, self.folder / "lake")
        self.without_spark = self.spark.started is None

    @property
    def config(self) -> Config:
        """The configuration of the source."""
        return self.drained.config(**_LIMITS)

    @property
    def lake(self) -> SourceLake:
        """The source's part of the lake."""
        return self.drained.source_lake

    @property
    def cut(self) -> Cut:
        """The newest cut."""
        cut = newest_cut(self.lake)
        assert cut is not None
        return cut

    @contextmanager
    def begun(self, statements: Iterable[str], ticks: int) -> Iterator[None]:
        """Make the schema, fill it a little, publish all of it and copy it; then let a drain run while the block runs."""
        with self.database.connect() as connection:
            for statement in statements:
                connection.execute(statement.encode())
            connection.execute(
                "CREATE TABLE IF NOT EXISTS public.heartbeat (id int PRIMARY KEY, beats bigint NOT NULL)"
            )
            connection.execute("INSERT INTO public.heartbeat VALUES (1, 0)")
            connection.execute("CREATE PUBLICATION shop FOR ALL TABLES WITH (publish_via_partition_root)")
        self.mutator = Mutator(self.database, self.seed)
        try:
            self.mutator.reload()
            self.mutator.ticks(ticks)
            self.mutator.settle()
            bootstrap(self.config, SOURCE)
            with self.drained.running("stopped", **_LIMITS):
                yield
        finally:
            self.mutator.close()

    def published(self) -> dict[TableName, list[str]]:
        """Return the tables that the server publishes, with the columns that it sends."""
        return {TableName(s, t): list(c) for s, t, c in self.database.rows(_PUBLISHED)}

    def recorded(self) -> set[TableName]:
        """Return the tables of the newest reading of the catalog that has landed."""
        catalog = newest_catalog(self.drained.chain())
        return set() if catalog is None else {table.table for table in catalog.tables.values()}

    def compact(self) -> None:
        """Run cycles up to the landing's end."""
        compact(self.config, SOURCE, self.spark, silent, Stop())

    def reached(self) -> None:
        """Wait until all that is committed now has landed, and compact until every table has it, or is held."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            with self.database.connect() as connection:
                connection.execute("UPDATE public.heartbeat SET beats = beats + 1")
            # A table that was created a moment ago is in the lake after the reading that first has it.
            wait_until(lambda: self.published().keys() <= self.recorded(), _PATIENCE_S)
            end = Lsn.parse(current_lsn(self.database.dsn))
            wait_until(lambda: self.drained.chain().end >= end, _PATIENCE_S)  # noqa: B023  awaited here
            self.compact()
            behind = [t for t, c in self.cut.tables.items() if t not in self.cut.held and c.at_lsn < end]
            if self.cut.position >= end and not behind:
                return
            assert time.monotonic() < deadline, f"seed {self.seed}: {behind[:9]} stand still, and are not held"

    def settle(self) -> set[TableName]:
        """Bring the lake to where the source stands, and compare every table that is not held; return those that are.

        A table that is not in the lake although it is published counts as held.
        """
        self.mutator.let_read()
        # What the stream does not bring, as a partition's TRUNCATE, is seen by a reading of the catalog after it: the table
        # is held then. On a loaded machine that takes longer than the interval.
        deadline = time.monotonic() + _NOTICED_S
        while True:
            self.reached()
            published = self.published()
            self.held = dict(self.cut.held)
            waiting = (self.held.keys() | (published.keys() - self.cut.tables.keys())) & published.keys()
            try:
                self.compare({t: c for t, c in published.items() if t not in waiting})
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LIMITS["catalog_interval_s"])
            else:
                return waiting - self.given_up

    def copied(self) -> None:
        """Copy what is held or was never copied, as `bootstrap --held` does; then every published table is equal.

        Without Spark, what the lake has already stays held.
        """
        self.mutator.settle()
        for _ in range(3):
            waiting = self.settle()
            if not waiting:
                return
            due = recopy(self.config, SOURCE, datetime.now(timezone.utc))
            tables = {*due.due, *due.paused}
            if self.without_spark:
                self.given_up |= tables & self.cut.tables.keys()
                tables -= self.given_up
            if tables:
                bootstrap(self.config, SOURCE, sorted(tables))
        reasons = {str(t): self.held.get(t, "is not in the lake") for t in waiting}
        raise AssertionError(f"seed {self.seed}: copies don't bring back {reasons}")

    def compare(self, tables: dict[TableName, list[str]]) -> None:
        """Compare tables of the newest cut with the source, which stands still."""
        cut, expected = self.cut, source_rows(self.database.dsn, tuple(tables), tables)
        for table, columns in tables.items():
            version = cut.tables[table].current_version
            if self._equal.get(table) == (version, expected[table]):
                continue
            actual = self._lake_rows(table, version, columns)
            assert actual == expected[table], _difference(self.seed, table, expected[table], actual)
            self._equal[table] = (version, expected[table])

    def _lake_rows(self, table: TableName, version: int, sent: list[str]) -> Rows:
        names, attnums = zip(
            *((n, a) for n, a in zip(*table_columns(self.database.dsn, table), strict=True) if n in sent), strict=True
        )
        if " " not in f"{table.schema}{table.name}":
            try:
                return lake_rows(self.lake.url(self.lake.paths.current(table)), version, list(names), list(attnums))
            except Exception as error:
                if "typewidening" not in str(error).lower():
                    raise
        # delta-rs knows no wider types, and no folders with a blank in their names.
        rows = read_lake(self.config).table(SOURCE, table, hidden=True).arrow()
        return rows_of(rows, list(names), list(attnums))


def _difference(seed: int, table: TableName, source: Rows, lake: Rows) -> str:
    few = [[[str(v)[:60] for v in row] for row in list(rows)[:3]] for rows in (source - lake, lake - source)]
    return f"seed {seed}: {table} has in the source {few[0]}, in the lake {few[1]}"
