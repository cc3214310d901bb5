"""Tables of every kind are copied, changed and compacted without a JVM: random transactions, with PostgreSQL as the oracle.

Values of several kilobytes are stored out of line and left out by updates that do not touch them, keys move, tables are
truncated, and every kind of change meets every other within one cycle and over several. Keys are numbers
with decimals, times with zones, floats (-0 and NaN), days that no calendar holds; a bag has equal rows, and a configured key
may be NULL.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession
from typing_extensions import LiteralString

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config, TableConfig
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import TableName
from lakeproof.proof.run import ProofRequest
from lakeproof.storage.source_lake import SourceLake
from tests.support.ingest.fix_drain import SOURCE, make_config
from tests.support.lake.compare import lake_rows, source_rows, table_columns
from tests.support.servers.fix_postgres import Database

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
TABLES: dict[str, LiteralString] = {
    "items": "id bigint PRIMARY KEY, n int, doc text, raw bytea, price numeric(10,2), at timestamptz, tags text[]",
    "pairs": "a int, b text, doc text, flag boolean, PRIMARY KEY (a, b)",
    "odd": '"the id" int PRIMARY KEY, "Weird; Name" text, "day" date, f double precision',
    "rates": "n numeric(9, 3) PRIMARY KEY, doc text, day date",
    "hours": "t timetz, f double precision, d date, v text, PRIMARY KEY (t, f, d)",
    "bag": "n int, f double precision, v text, day date",
    "full": "id int, v text, f real",
    "exact": "k numeric(6, 2), v text",
}
# Unique, with NULL as a value, on every version.
INDEXES: tuple[LiteralString, ...] = (
    'CREATE UNIQUE INDEX ON "full" (coalesce(id, -1))',
    "CREATE UNIQUE INDEX ON exact (coalesce(k, -1))",
)
KEYS = {"items": 40, "pairs": 30, "odd": 20, "rates": 12, "hours": 18, "bag": 4, "full": 12, "exact": 10}
# Their updates and deletes bring the whole old row; a key is configured for two of them.
FULL = ("bag", "full", "exact")
CONFIGURED = {"full": "id", "exact": "k"}


def no_jvm() -> SparkSession:
    """Fail: nothing here needs Spark."""
    raise AssertionError("a JVM was asked for")


class Workload:
    """Random transactions on the tables."""

    def __init__(self, connection: psycopg.Connection[Any], rng: random.Random) -> None:
        self.connection = connection
        self.rng = rng

    def text(self) -> str | None:
        """Return a short text, none, or one that PostgreSQL stores out of line."""
        size = self.rng.choice([0, 3, 3, 3, 9000, 20000])
        return None if size == 0 else "".join(self.rng.choices("abcdefghijklmnopqrstuvwxyz0123456789äß", k=size))

    def values(self, table: str) -> dict[str, Any]:
        """Return a row's values beside its key."""
        rng = self.rng
        if table == "items":
            raw = None if rng.random() < 0.5 else rng.randbytes(rng.choice([3, 5000]))
            moment = f"2026-0{rng.randint(1, 9)}-11 10:00:{rng.randint(10, 59)}.{rng.randint(0, 999999):06}+02"
            price, tags = rng.randint(-(10**9), 10**9) / 100, rng.choice([None, [], ["a", None, "b,c"]])
            return {"n": rng.randint(0, 9), "doc": self.text(), "raw": raw, "price": price, "at": moment, "tags": tags}
        if table == "pairs":
            return {"doc": self.text(), "flag": rng.choice([None, True, False])}
        day = rng.choice(["2024-02-29", "infinity", "0044-03-15 BC"])
        if table == "rates":
            return {"doc": self.text(), "day": rng.choice([None, day])}
        if table in {"hours", "exact"}:
            return {"v": rng.choice([None, "", "é|~", self.text()])}
        if table == "bag":
            # Few values, so that there are equal rows.
            return {
                "f": rng.choice(["0", "-0", "NaN", None]),
                "v": rng.choice([None, "|", "x"]),
                "day": rng.choice([None, day]),
            }
        if table == "full":
            return {"v": self.text(), "f": rng.choice([0.0, -0.0, None])}
        return {"Weird; Name": self.text(), "day": day, "f": rng.choice([0.0, -0.0, 1.5, float("nan")])}

    def key(self, table: str) -> dict[str, Any]:
        """Return a key, existing or not."""
        number = self.rng.randrange(KEYS[table])
        if table == "pairs":
            return {"a": number % 6, "b": f"k{number // 6}"}
        if table == "rates":
            numbers = ["1.5", "1", "-0.001", "NaN", "0", "999999.999", "10", "2", "3", "4", "5", "6"]
            return {"n": numbers[number]}
        if table == "hours":
            times = ["10:00+00", "10:00+02", "24:00:00+00"]
            days = ["infinity", "2024-02-29"]
            return {"t": times[number % 3], "f": ["0", "-0", "NaN"][number // 6], "d": days[number % 2]}
        if table == "bag":
            return {"n": None if number == 3 else number}
        if table == "full":
            return {"id": None if number == 0 else number}
        if table == "exact":
            return {"k": None if number == 0 else "NaN" if number == 1 else f"{number}.5"}
        return {"id" if table == "items" else "the id": number}

    def change(self, table: str) -> None:
        """Make one change."""
        name, key, values = sql.Identifier(table), self.key(table), self.values(table)
        where = sql.SQL(" AND ").join(
            sql.SQL("{} IS NOT DISTINCT FROM {}").format(sql.Identifier(k), sql.Literal(v)) for k, v in key.items()
        )
        kind = self.rng.choices(["insert", "update", "part", "delete", "move", "truncate"], [6, 3, 4, 2, 2, 0.1])[0]
        row = {**key, **values}
        if kind == "insert":
            columns = sql.SQL(", ").join(map(sql.Identifier, row))
            literals = sql.SQL(", ").join(map(sql.Literal, row.values()))
            query = sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT DO NOTHING").format(name, columns, literals)
        elif kind == "delete":
            query = sql.SQL("DELETE FROM {} WHERE {}").format(name, where)
        elif kind == "truncate":
            query = sql.SQL("TRUNCATE {}").format(name)
        else:
            if kind == "part":
                values = dict(self.rng.sample(sorted(values.items()), 1))
            if kind == "move":
                moved = self.key(table)
                other = sql.SQL(" AND ").join(
                    sql.SQL("{} IS NOT DISTINCT FROM {}").format(sql.Identifier(k), sql.Literal(v))
                    for k, v in moved.items()
                )
                if table != "bag":
                    self.connection.execute(sql.SQL("DELETE FROM {} WHERE {} AND NOT ({})").format(name, other, where))
                values = moved
            settings = sql.SQL(", ").join(
                sql.SQL("{} = {}").format(sql.Identifier(k), sql.Literal(v)) for k, v in values.items()
            )
            query = sql.SQL("UPDATE {} SET {} WHERE {}").format(name, settings, where)
        self.connection.execute(query)

    def transaction(self) -> None:
        """Make some changes, and take some of them back."""
        with self.connection.transaction():
            for _ in range(self.rng.choice([1, 3, 12])):
                with self.connection.transaction(force_rollback=self.rng.random() < 0.1):
                    self.change(self.rng.choice(list(TABLES)))


def check(config: Config, database: Database, tables: tuple[TableName, ...], step: str) -> None:
    """Compare every table at the newest cut with the source, which stands still."""
    lake = SourceLake.open(config.location, SOURCE)
    cut = newest_cut(lake)
    assert cut is not None, step
    assert dict(cut.held) == {}, f"{step}, seed {SEED}"
    expected = source_rows(database.dsn, tables)
    for table in tables:
        path, version = lake.url(lake.paths.current(table)), cut.tables[table].current_version
        actual = lake_rows(path, version, *table_columns(database.dsn, table))
        assert actual == expected[table], f"{table} {step}, seed {SEED}"


def _with_keys(config: Config) -> Config:
    keys = {TableName("public", name): TableConfig(key=(key,)) for name, key in CONFIGURED.items()}
    source = config.sources[SOURCE]
    return config.model_copy(update={"sources": {SOURCE: source.model_copy(update={"table": keys})}})


@pytest.mark.parametrize("rounds", [8, pytest.param(60, marks=pytest.mark.full)])
def test_the_lake_is_what_the_source_is(database: Database, tmp_path: Path, rounds: int) -> None:
    """Copies, then cycles: rows at each cut equal the source's, and nothing asks for a JVM; a proof of histories agrees."""
    rng = random.Random(SEED)
    tables = tuple(TableName("public", name) for name in TABLES)
    config = _with_keys(make_config(database.dsn, tmp_path / "lake", database.name))
    spark = SparkOnDemand(no_jvm)
    with database.connect() as connection:
        workload = Workload(connection, rng)
        for name, columns in TABLES.items():
            connection.execute(sql.SQL("CREATE TABLE {} ({})").format(sql.Identifier(name), sql.SQL(columns)))
            if name in FULL:
                connection.execute(sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(sql.Identifier(name)))
        for index in INDEXES:
            connection.execute(index)
        connection.execute(sql.SQL("CREATE PUBLICATION {} FOR ALL TABLES").format(sql.Identifier(SOURCE)))
        for _ in range(20):
            workload.transaction()
        bootstrap(config, SOURCE)
        for number in range(rounds):
            for _ in range(rng.choice([1, 5, 20])):
                workload.transaction()
            drain(config, SOURCE, Until.caught_up())
            compact(config, SOURCE, spark, silent, Stop())
            check(config, database, tables, f"in round {number}")
        proof = prove(config, SOURCE, None, spark, None, ProofRequest(history=True))
    assert (proof.equal, len(proof.tables)) == (True, len(TABLES)), f"{proof}, seed {SEED}"
    assert spark.started is None
