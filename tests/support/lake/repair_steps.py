"""The steps of a test of repairs: tables with many kinds of keys, damage in current's own files, and a writer beside.

Repairing, and what is expected of it, belongs to the tests.
"""
# ruff: noqa: S608  the statements are made here, of the tests' own names and numbers

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from psycopg.sql import SQL

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.lake.spark_on_demand import AnySpark
from lakeproof.names import TableName
from lakeproof.proof.run import ProofRequest
from lakeproof.storage.source_lake import SourceLake
from tests.support.faults.damage import alter, data_files
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE, into_the_lake

ROWS = 300
REPAIR = ProofRequest(repair=True, part=TABLES_ALONE.part)


@dataclass(frozen=True)
class Keyed:
    """A table with rows of numbers `i`: its key's columns, and their values as SQL over `i`."""

    name: str
    columns: str
    names: str
    values: str
    extra: str = ""
    row_filter: str = ""
    setup: tuple[str, ...] = ()

    @property
    def table(self) -> TableName:
        """Its name."""
        return TableName("public", self.name)

    def create(self) -> list[str]:
        """Return its DDL, and the statement that fills it."""
        columns = f"{self.columns}, n int, v text, pad text, doc text, PRIMARY KEY ({self.names})"
        created = f"CREATE TABLE {self.name} ({columns}) {self.extra}"
        external = f"ALTER TABLE {self.name} ALTER COLUMN doc SET STORAGE EXTERNAL"
        return [*self.setup, created, *self.partitions(), external, self.insert(f"generate_series(1, {ROWS}) i")]

    def partitions(self) -> list[str]:
        """Return the DDL of its partitions."""
        if not self.extra:
            return []
        half = ROWS // 2
        return [
            f"CREATE TABLE {self.name}_low PARTITION OF {self.name} FOR VALUES FROM (0) TO ({half})",
            f"CREATE TABLE {self.name}_high PARTITION OF {self.name} FOR VALUES FROM ({half}) TO (1000000)",
        ]

    def insert(self, numbers: str, v: str = "'v' || i") -> str:
        """Return the INSERT of rows; each third has a value that is stored out of line."""
        pad = "(SELECT string_agg(md5(i * 100 + j || ''), '') FROM generate_series(1, 20) j)"
        doc = "CASE WHEN i % 3 = 0 THEN repeat(md5(i::text), 100) ELSE 'd' END"
        return f"INSERT INTO {self.name} SELECT {self.values}, i, {v}, {pad}, {doc} FROM {numbers}"

    def where(self, numbers: Sequence[int]) -> str:
        """Return the condition for rows of these numbers."""
        chosen = ", ".join(map(str, numbers)) or "-1"
        return f"({self.names}) IN (SELECT {self.values} FROM unnest(ARRAY[{chosen}]) i)"

    def member(self) -> str:
        """Return how its publication names it."""
        return self.name + (f" WHERE ({self.row_filter})" if self.row_filter else "")


@dataclass
class Damage:
    """The numbers of rows that are lost, changed, that nobody has, and that are there twice."""

    lost: list[int] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    nobody: list[int] = field(default_factory=list)
    twice: list[int] = field(default_factory=list)

    @property
    def numbers(self) -> list[int]:
        """All of them."""
        return sorted([*self.lost, *self.changed, *self.nobody, *self.twice])


def run(database: Database, *statements: str) -> None:
    """Run statements that are made here."""
    database.execute(*(SQL(statement) for statement in statements))


def largest_file(config: Config, keyed: Keyed) -> Path:
    """Return the file of current that has the rows of the copy, or most of them."""
    place = Path(config.lake) / SourceLake.open(config.location, "shop").paths.current(keyed.table)
    return max(data_files(place), key=lambda file: file.stat().st_size)


def damage(rng: random.Random, config: Config, keyed: Keyed, gone: pa.Table) -> Damage:
    """Damage a few rows of each sort in current's file, and return which; the source has deleted the rows of `gone`."""
    file = largest_file(config, keyed)
    gone_numbers = gone["n"].to_pylist()
    numbers = [n for n in pq.read_table(file)["n"].to_pylist() if n not in gone_numbers]
    rng.shuffle(numbers)
    twice = rng.randint(1, 3)
    result = Damage(
        lost=numbers[: len(gone_numbers) + twice],
        changed=numbers[20 : 20 + rng.randint(3, 6)],
        nobody=gone_numbers,
        twice=numbers[30 : 30 + twice],
    )
    # A row that is lost makes room for one that nobody has, or for one that is there already.
    others = dict(zip(result.lost, [*result.nobody, *result.twice], strict=True))

    def change(rows: pa.Table) -> pa.Table:
        rows = pa.concat_tables([rows, gone.select(rows.column_names).cast(rows.schema)])
        place = {n: i for i, n in enumerate(rows["n"].to_pylist())}
        kept = rows.num_rows - gone.num_rows
        taken = rows.take([place[others.get(n, n)] for n in rows["n"].to_pylist()[:kept]])
        # Of the rows that are there twice, some have another value once.
        doubled = pa.array([others.get(n) in result.twice and others[n] % 2 == 1 for n in rows["n"].to_pylist()[:kept]])
        wrong = pc.or_(pc.is_in(taken["n"], pa.array(result.changed, pa.int32())), doubled)
        for name, value in (("v", "wrong"), ("pad", "")):
            altered = pc.if_else(wrong, value, taken[name]).cast(taken[name].type)
            taken = taken.set_column(taken.column_names.index(name), name, altered)
        return taken

    alter(file, change)
    return result


def write_beside(rng: random.Random, database: Database, keyed: Keyed, damaged: Damage) -> None:
    """Change rows of damaged keys, and others."""
    there = sorted({*damaged.lost, *damaged.changed, *damaged.twice})
    updated, deleted = rng.sample(there, len(there) // 2), rng.sample(there, 1)
    others = [n for n in rng.sample(range(1, ROWS), 5) if n not in damaged.numbers]
    again = [i for i in rng.sample(damaged.nobody, 1) if i not in updated]
    statements = [
        f"UPDATE {keyed.name} SET v = v || ' beside' WHERE {keyed.where(updated)}",
        f"DELETE FROM {keyed.name} WHERE {keyed.where(deleted)}",
        f"UPDATE {keyed.name} SET v = v || ' beside' WHERE {keyed.where(others)}",
        f"DELETE FROM {keyed.name} WHERE {keyed.where(again)}",
        keyed.insert(f"unnest(ARRAY{again}::int[]) i", "'once more'"),
    ]
    run(database, *statements)


def make_config(database: Database, tmp_path: Path, tables: Sequence[Keyed], **settings: Any) -> Config:
    """Return the configuration of a source with these tables, copied and in the lake."""
    for keyed in tables:
        run(database, *keyed.create())
    members = ", ".join(keyed.member() for keyed in tables)
    run(database, f"CREATE PUBLICATION pub FOR TABLE {members} WITH (publish_via_partition_root)")
    source = database.source(buckets=64, **settings)
    config = Config(path=tmp_path / "lakeproof.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})
    bootstrap(config, "shop")
    return config


def damaged_lake(
    rng: random.Random, database: Database, config: Config, spark: AnySpark, tables: Sequence[Keyed]
) -> dict[TableName, Damage]:
    """Delete a few rows of each table in the source, bring that into the lake, and damage it."""
    gone = dict[TableName, pa.Table]()
    for keyed in tables:
        rows = pq.read_table(largest_file(config, keyed))
        gone[keyed.table] = rows.take(sorted(rng.sample(range(rows.num_rows), rng.randint(1, 4))))
        run(database, f"DELETE FROM {keyed.name} WHERE {keyed.where(gone[keyed.table]['n'].to_pylist())}")
    into_the_lake(config, spark)
    return {keyed.table: damage(rng, config, keyed, gone[keyed.table]) for keyed in tables}


def rows_under(database: Database, keyed: Keyed, numbers: Sequence[int]) -> int:
    """The number of rows that the publication has under some keys."""
    query = f"SELECT count(*) FROM {keyed.name} WHERE {keyed.where(numbers)} AND ({keyed.row_filter or 'true'})"
    return int(database.value(SQL(query)))


def _md5(text: str | None) -> str | None:
    return None if text is None else hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def check_rows(database: Database, config: Config, spark: AnySpark, tables: Sequence[Keyed]) -> None:
    """The lake has the source's rows now, by plain SQL on both sides; histories add up."""
    into_the_lake(config, spark)
    lake = read_lake(config)
    for keyed in tables:
        query = f"SELECT v, md5(doc) FROM {keyed.name} WHERE {keyed.row_filter or 'true'}"
        expected = Counter(database.rows(SQL(query)))
        rows = lake.table("shop", keyed.table).select("v", "doc").arrow().to_pylist()
        actual = Counter((row["v"], _md5(row["doc"])) for row in rows)
        assert actual == expected, keyed.name
    proof = prove(config, "shop", None, spark, request=ProofRequest(history=True))
    assert {str(t): (p.status, p.reason) for t, p in proof.tables.items() if p.status != "equal"} == {}
    assert proof.damaged == {}
