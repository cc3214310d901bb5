"""A table's changes from cut to cut while its columns change under a real PostgreSQL: each part has its two shapes.

A view's changes across its shapes are in `test_view_changes.py`, what each change of schema does to the lake in
`test_schema_change.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
import pytest
from psycopg.sql import SQL, Composed, Identifier
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from typing_extensions import LiteralString

import lakeproof
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.config.model import Config
from lakeproof.drain.until import Until
from lakeproof.errors import LakeError
from lakeproof.events import Stop, silent
from lakeproof.lake.read.spark.changes import CutChanges
from lakeproof.lake.records.store import newest_number
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import into_the_lake
from tests.support.workloads.lake_workload import SEED
from tests.support.workloads.pipeline_steps import pipeline_config, publish

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

Row: TypeAlias = tuple[Any, ...]
SOURCE = "shop"
KEYED, BAG = TableName("public", "keyed"), TableName("public", "bag")
# Each is one or more transactions with changes on both sides.
STEPS: tuple[tuple[LiteralString, ...], ...] = (
    ("ALTER TABLE keyed ADD x int DEFAULT 7", "ALTER TABLE bag ADD x int"),
    ('ALTER TABLE keyed RENAME w TO "W é"',),
    ("ALTER TABLE keyed DROP COLUMN IF EXISTS x, ADD y text", "ALTER TABLE bag DROP w"),
    ("ALTER TABLE keyed RENAME id TO number", "ALTER TABLE keyed ALTER number TYPE bigint"),
)


class Shop:
    """The two tables, changed at random, and what PostgreSQL had in them at each compaction, by the newest cut."""

    def __init__(self, database: Database, spark: SparkSession, config: Config) -> None:
        self.database, self.spark, self.config = database, spark, config
        self.rng = random.Random(SEED)
        self.states: dict[int, Mapping[TableName, Counter[Row]]] = {}

    def change(self) -> None:
        """Insert, update and delete; columns by their places, since names change."""
        with psycopg.connect(self.database.dsn) as conn:
            key = Identifier(_names(conn, KEYED)[0])
            for _ in range(8):
                number = self.rng.randrange(1, 30)
                conn.execute(SQL("DELETE FROM keyed WHERE {} = %s").format(key), (number,))
                if self.rng.random() < 0.7:
                    values = (number, self.rng.randrange(9))
                    conn.execute(SQL("INSERT INTO keyed ({}, v) VALUES (%s, %s)").format(key), values)
                conn.execute("INSERT INTO bag (v) VALUES (%s)", (self.rng.randrange(4),))
                conn.execute("DELETE FROM bag WHERE v = %s", (self.rng.randrange(9),))

    def compact(self) -> int:
        """Drain and compact, and remember what PostgreSQL has; returns the newest cut."""
        drain(self.config, SOURCE, Until.caught_up(), silent, Stop())
        compact(self.config, SOURCE, self.spark, silent, Stop())
        cut = self.newest()
        with psycopg.connect(self.database.dsn) as conn:
            self.states[cut] = {table: Counter(conn.execute(_all(table))) for table in (KEYED, BAG)}
        return cut

    def newest(self) -> int:
        """Return the newest cut's number."""
        lake = SourceLake.open(self.config.location, SOURCE)
        return int(newest_number(lake.store, lake.paths.cuts))


def _names(conn: psycopg.Connection[Any], table: TableName) -> list[str]:
    return [column.name for column in conn.execute(_all(table)).description or ()]


def _all(table: TableName) -> Composed:
    return SQL("TABLE {}").format(Identifier(table.name))


def _replayed(changes: CutChanges, table: TableName, shop: Shop) -> Counter[str]:
    """Apply every change to nothing, and compare with PostgreSQL at each cut of which its rows are known."""
    rows: Counter[Row] = Counter()
    kinds: Counter[str] = Counter()
    shapes: list[StructType] = []
    for part in changes.parts(table):
        if part.before != part.after:
            assert part.first == part.last
        assert not shapes or shapes[-1] == part.before, "each part begins with the shape that the last one ends with"
        shapes.append(part.after)
        assert part.rows.select("before.*").columns == part.before.names
        given = part.rows.collect()
        for cut in range(int(part.first), int(part.last) + 1):
            for change in (r for r in given if r["cut"] == cut):
                kinds[change["kind"]] += 1
                assert (change["before"] is None, change["after"] is None) == (
                    change["kind"] == "insert",
                    change["kind"] == "delete",
                )
                rows.subtract([] if change["before"] is None else [tuple(change["before"])])
                rows.update([] if change["after"] is None else [tuple(change["after"])])
            assert min(rows.values(), default=0) >= 0, f"{table} at cut {cut}, LAKEPROOF_SEED={SEED}"
            if cut in shop.states:
                assert +rows == shop.states[cut][table], f"{table} at cut {cut}, LAKEPROOF_SEED={SEED}"
    assert +rows == shop.states[max(shop.states)][table]
    return kinds


def _check_without_spark(shop: Shop, changes: CutChanges) -> None:
    """Compare each cut's changes with Spark's: the same rows, and the same names of their columns."""
    expected = {table: Counter[Any]() for table in (KEYED, BAG)}
    for table, counts in expected.items():
        for part in changes.parts(table):
            rows = part.rows.collect()
            names = part.before.names, part.after.names
            counts.update((*_plain(r["kind"], r["before"], r["after"]), r["cut"], str(names)) for r in rows)
    actual = {table: Counter[Any]() for table in (KEYED, BAG)}
    for step in lakeproof.read_changes(shop.config, 0):
        for table in set(step.tables) & {KEYED, BAG}:
            changed = step.table(table)
            names = changed.before.names, changed.after.names
            for r in changed.arrow().to_pylist():
                images = [None if r[side] is None else tuple(r[side].values()) for side in ("before", "after")]
                actual[table].update([(*_plain(r["kind"], *images), int(step.cut.number), str(names))])
    assert actual == expected, f"LAKEPROOF_SEED={SEED}"


def _plain(kind: str, before: Any, after: Any) -> tuple[Any, ...]:
    return kind, None if before is None else tuple(before), None if after is None else tuple(after)


@pytest.mark.full
@pytest.mark.parametrize("steps", [2, pytest.param(len(STEPS), marks=pytest.mark.full)])
def test_the_changes_lead_from_state_to_state(
    database: Database, spark: SparkSession, tmp_path: Path, steps: int
) -> None:
    """A column is added with a constant, renamed, dropped, and the key is renamed and made wider; of a bag too."""
    database.execute("CREATE TABLE keyed (id int PRIMARY KEY, v int, w text)")
    database.execute("INSERT INTO keyed SELECT i, i, 'w' || i FROM generate_series(1, 20) i")
    database.execute("CREATE TABLE bag (v int, w text)")
    database.execute("ALTER TABLE bag REPLICA IDENTITY FULL")
    database.execute("INSERT INTO bag SELECT i % 5, 'w' FROM generate_series(1, 20) i")
    publish(database, (KEYED, BAG))
    shop = Shop(database, spark, pipeline_config(database, tmp_path / "lake"))
    bootstrap(shop.config, SOURCE, None, silent, Stop())
    shop.change()
    # Not beside a column that is added: rows in a new file with it are of unknown values, and the table is held.
    if shop.rng.random() < 0.5:
        database.execute("TRUNCATE bag")
        shop.change()
    before = shop.compact()
    chosen = sorted(random.Random(SEED).sample(range(len(STEPS)), steps))
    for step in (STEPS[number] for number in chosen):
        shop.change()
        for statement in step:
            database.execute(statement)
        shop.change()
        last = shop.compact()
    changes = lakeproof.changes(spark, shop.config, 0)
    assert set(_replayed(changes, KEYED, shop)) == {"insert", "update", "delete"}
    assert set(_replayed(changes, BAG, shop)) == {"insert", "delete"}
    _check_without_spark(shop, changes)
    with pytest.raises(LakeError, match=r"its columns change in cut .*parts"):
        changes.table(KEYED)
    alone = lakeproof.changes(spark, shop.config, before - 1, before)
    assert alone.table(KEYED).count() == sum(part.rows.count() for part in alone.parts(KEYED))
    assert (
        lakeproof.changes(spark, shop.config, last, last).table(KEYED).columns == changes.parts(KEYED)[0].rows.columns
    )


@pytest.mark.full
def test_a_column_that_is_gone_and_a_wider_type_are_no_changes_of_rows(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    """What `_lp_text` still says of a dropped column is in no comparison, and a bag's rows stay the same rows."""
    database.execute(
        "CREATE TABLE keyed (id int PRIMARY KEY, at timestamp, v text)",
        "INSERT INTO keyed VALUES (1, 'infinity', 'a'), (2, 'infinity', 'b'), (3, '2024-01-01', 'c')",
        "CREATE TABLE bag (v varchar(9))",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        "INSERT INTO bag VALUES ('a'), ('a'), (NULL)",
    )
    publish(database, (KEYED, BAG))
    shop = Shop(database, spark, pipeline_config(database, tmp_path / "lake"))
    bootstrap(shop.config, SOURCE, None, silent, Stop())
    # Python can't hold these times; so the first cut is not compared.
    into_the_lake(shop.config, spark)
    first = shop.newest()
    database.execute(
        "ALTER TABLE keyed DROP COLUMN at", "ALTER TABLE bag ALTER v TYPE varchar(10)", "INSERT INTO bag VALUES ('b')"
    )
    second = shop.compact()
    database.execute("UPDATE keyed SET v = v WHERE id IN (1, 3)")
    third = shop.compact()
    changes = lakeproof.changes(spark, shop.config, 0)
    _check_without_spark(shop, changes)
    for table in (KEYED, BAG):
        _replayed(changes, table, shop)
    kinds = [
        r["kind"]
        for part in lakeproof.changes(spark, shop.config, first, second).parts(BAG)
        for r in part.rows.collect()
    ]
    assert kinds == ["insert"]
    assert lakeproof.changes(spark, shop.config, second, third).table(KEYED).isEmpty()
