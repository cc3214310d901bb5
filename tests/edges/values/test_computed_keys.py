"""`_lp_key` is the same whoever writes it: every kind in a key, and rows of all kinds as a bag, by Spark and in Arrow."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from demo.server import EmbeddedPostgres
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.config.model import TableConfig
from lakeproof.drain.until import Until
from lakeproof.errors import ConfigError
from lakeproof.events import Stop, silent
from lakeproof.hidden_columns import DUP, KEY, OP, ORD
from lakeproof.lake.cycle import table as cycle_table
from lakeproof.lake.rows.columns import key_value, row_key
from lakeproof.lake.rows.file_rows import DIGEST, FileRows, names_in_files
from lakeproof.lake.spark_on_demand import NoSparkError, SparkOnDemand
from lakeproof.postgres.connections.connect import Connection
from lakeproof.schema import Identity, SchemaVersion
from lakeproof.values.exact_kinds import needs_key_text
from tests.edges.values.exact_tables import exact_schema, fill, to_arrow, to_lake, version_of
from tests.edges.values.exact_values import PINNED, PINS, Text, columns
from tests.support.ingest.fix_drain import SOURCE, make_config
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres
ROWS = 120


@pytest.fixture
def conn(postgres: EmbeddedPostgres) -> Iterator[Connection]:
    """A connection of ours to an empty schema `exact`."""
    with exact_schema(postgres.dsn()) as connection:
        yield connection


def _landed(version: SchemaVersion, rows: pa.Table, ops: list[str]) -> pa.RecordBatch:
    """Rows as a landed file has them."""
    names = names_in_files(version, [c.name for c in version.columns])
    batch = rows.combine_chunks().rename_columns([names.get(name, name) for name in rows.column_names])
    batch = batch.append_column(OP, pa.array(ops).dictionary_encode())
    return batch.append_column(ORD, pa.array(range(rows.num_rows))).to_batches()[0]


@pytest.mark.spark
def test_every_kind_has_one_key_in_spark_and_in_arrow(conn: Connection, spark: SparkSession, tmp_path: Path) -> None:
    """Extremes, random values, values that no lake type holds, NULLs: as a key of each kind, in pairs, and as a bag."""
    seed = int(os.environ.get("LAKEPROOF_SEED", str(random.randrange(1 << 32))))
    print(f"LAKEPROOF_SEED={seed}")  # noqa: T201  (pytest shows it beside a failure)
    result = columns(seed, ROWS, conn.info.server_version)
    definition = sql.SQL(", ").join(sql.SQL("{} " + t).format(sql.Identifier(f"{i} {t}")) for i, t in enumerate(result))
    conn.execute(sql.SQL("CREATE TABLE t (id int, {}, pinned numeric, pins numeric[])").format(definition))
    ids: list[Text] = [str(i) for i in range(ROWS)]
    pinned = [[*values, *([None] * (ROWS - len(values)))] for values in (PINNED, PINS)]
    fill(conn, "t", [ids, *result.values(), *pinned])
    bag = version_of(conn, "t", table=TableConfig(numeric={"pinned": (12, 4), "pins": (12, 4)}))
    bag = replace(bag, identity=Identity.FULL)
    kinds = {column.kind: column.name for column in bag.columns}
    versions = [replace(bag, key=key) for name in kinds.values() for key in ((name,), ("id", name), (name, "pinned"))]
    versions = [bag, *filter(needs_key_text, versions)]
    assert len(versions) > 20
    lake = to_lake(conn, bag, spark, tmp_path)
    keys = [key_value(version).alias(f"k{i}") for i, version in enumerate(versions)]
    by_spark = lake.select("id", *keys, row_key(bag).alias("digest")).toArrow().sort_by("id")
    rows = to_arrow(conn, bag).sort_by("id")
    batch = _landed(bag, rows, ["insert"] * ROWS)
    for i, version in enumerate(versions):
        whole = FileRows(version, [KEY]).of(batch)[KEY].to_pylist()
        assert whole == by_spark[f"k{i}"].to_pylist(), version.key
        # In pieces out of the middle: buffers with an offset.
        pieces = [batch.slice(n, 17) for n in range(0, ROWS, 17)]
        assert [k for piece in pieces for k in FileRows(version, [KEY]).of(piece)[KEY].to_pylist()] == whole
    assert FileRows(versions[1], [DIGEST]).of(batch)[DIGEST].to_pylist() == by_spark["digest"].to_pylist()


def test_a_row_that_is_none_has_no_key(conn: Connection) -> None:
    """A TRUNCATE has none in any table, NULL none in an identity's index; a configured key may be NULL."""
    conn.execute("CREATE TABLE t (id int, n numeric(4, 2))")
    fill(conn, "t", [["1", "2", "3"], ["1.50", None, None]])
    version = version_of(conn, "t", ("n",))
    batch = _landed(version, to_arrow(conn, version), ["insert", "insert", "truncate"])
    assert FileRows(version, [KEY, ORD]).of(batch, 7)[KEY].to_pylist() == ["4:1.50", None, None]
    full = replace(version, identity=Identity.FULL)
    assert FileRows(full, [KEY]).of(batch)[KEY].to_pylist() == ["4:1.50", "~", None]
    bag = replace(full, key=())
    of_bag = FileRows(bag, [KEY, DUP]).of(batch, 7)
    assert [len(key or "") for key in of_bag[KEY].to_pylist()] == [32, 32, 0]
    assert of_bag[DUP].to_pylist() == [7, 8, 9]


def test_more_rows_than_one_thread_computes_keys_for_are_left_to_spark(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first copy and a range are left to Spark, by name; a table whose key is used as it is has no such bound."""

    def no_java() -> SparkSession:
        raise ConfigError("Java", "there is none", "install it")

    database.execute(
        "CREATE TABLE rates (n numeric(9, 3) PRIMARY KEY)",
        "CREATE TABLE plain (id int PRIMARY KEY)",
        "INSERT INTO rates SELECT generate_series(1, 50)",
        "INSERT INTO plain SELECT generate_series(1, 50)",
        f"CREATE PUBLICATION {SOURCE} FOR ALL TABLES",
    )
    config = make_config(database.dsn, tmp_path / "lake", database.name)
    bootstrap(config, SOURCE)
    drain(config, SOURCE, Until.caught_up())
    for _ in ("copy", "range"):
        with monkeypatch.context() as small:
            small.setattr(cycle_table, "COMPUTED_BYTES_MAX", 0)  # inside: its real limit takes a gigabyte
            with pytest.raises(NoSparkError, match=r"table public\.rates.*a key is computed for each of its rows"):
                compact(config, SOURCE, SparkOnDemand(no_java), silent, Stop())
        compact(config, SOURCE, SparkOnDemand(no_java), silent, Stop())
        database.execute("UPDATE rates SET n = n + 100", "UPDATE plain SET id = id + 100")
        drain(config, SOURCE, Until.caught_up())
