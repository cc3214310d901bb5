"""Tables in PostgreSQL and, by the way that rows go, in Delta: for tests of the exact forms and of the proof's comparison.

The lake's side: PostgreSQL's output text, the one caster, Parquet, a Delta table, Spark. Fixtures stand in the tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from psycopg import sql
from pydantic import SecretStr
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.config.model import TableConfig
from lakeproof.names import Oid, TableName
from lakeproof.postgres.catalog.published import read_types
from lakeproof.postgres.connections.connect import Connection, connect
from lakeproof.proof.compare import Bucket
from lakeproof.proof.source import form as source_form
from lakeproof.proof.source.form import ComparedRelation
from lakeproof.schema import Identity, SchemaVersion
from lakeproof.values.cast import cast_column, text_overflow
from lakeproof.values.catalog_kinds import make_column
from tests.edges.values.exact_values import DEFINITIONS, Text

_ATTRIBUTES = """
SELECT attnum, attname::text, atttypmod, atttypid FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


@contextmanager
def exact_schema(dsn: str) -> Iterator[Connection]:
    """A connection of ours whose search_path is the schema `exact`, new and with the types of `DEFINITIONS`."""
    with connect(SecretStr(dsn)) as connection:
        connection.execute("DROP SCHEMA IF EXISTS exact CASCADE")
        connection.execute("CREATE SCHEMA exact")
        connection.execute("SET search_path = exact")
        connection.execute(DEFINITIONS)
        yield connection
        connection.execute("DROP SCHEMA exact CASCADE")


def version_of(
    conn: Connection, name: str, key: tuple[str, ...] = (), table: TableConfig | None = None
) -> SchemaVersion:
    """The schema version of a table of the schema `exact`, from the catalog."""
    actual = conn.execute(_ATTRIBUTES, (f"exact.{name}",)).fetchall()
    types = read_types(conn, {oid for *_, oid in actual})
    result = [
        make_column(column, types[oid], typmod, attnum=attnum, identity=column in key, table=table)
        for attnum, column, typmod, oid in actual
    ]
    return SchemaVersion(TableName("exact", name), Oid(1), Identity.DEFAULT, tuple(result), key)


def relation_of(version: SchemaVersion, **settings: Any) -> ComparedRelation:
    """Return all rows of the version's own table, for the source's queries."""
    table = sql.Identifier(version.table.schema, version.table.name)
    return ComparedRelation(version, sql.SQL("ONLY {}").format(table), **settings)


def fill(conn: Connection, name: str, values: Sequence[Sequence[Text]]) -> None:
    """Copy columns of texts into a table."""
    with conn.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(name))) as copy:
        for row in zip(*values, strict=True):
            copy.write_row(row)


def to_arrow(conn: Connection, version: SchemaVersion) -> pa.Table:
    """Return a table's rows the way rows go, from the texts that COPY gives, with `_lp_text`."""
    columns_sql = sql.SQL(", ").join(sql.Identifier(c.name) for c in version.columns)
    query = sql.SQL("COPY {} ({}) TO STDOUT").format(sql.Identifier("exact", version.table.name), columns_sql)
    with conn.cursor().copy(query) as copy:
        rows = list(copy.rows())
    texts = [pa.array([row[i] for row in rows], pa.string()) for i in range(len(version.columns))]
    casts = [cast_column(t, c) for t, c in zip(texts, version.columns, strict=True)]
    assert all(cast.malformed is None for cast in casts)
    hidden = text_overflow(list(zip(version.columns, texts, casts, strict=True)), length=len(rows))
    return pa.table([*(cast.values for cast in casts), hidden], [*(c.name for c in version.columns), "_lp_text"])


def to_lake(conn: Connection, version: SchemaVersion, spark: SparkSession, folder: Path) -> DataFrame:
    """Bring a table into a Delta table in `folder/current` the way rows go."""
    rows = to_arrow(conn, version)
    places = [f"c{i}" for i in range(rows.num_columns - 1)]
    pq.write_table(rows.rename_columns([*places, "_lp_text"]), folder / "chunk.parquet")
    landed = spark.read.parquet(str(folder / "chunk.parquet"))
    named = landed.select(*(F.col(f"c{i}").alias(c.name) for i, c in enumerate(version.columns)), F.col("_lp_text"))
    named.write.format("delta").option("delta.columnMapping.mode", "name").save(str(folder / "current"))
    return spark.read.format("delta").load(str(folder / "current"))


def source_buckets(conn: Connection, relation: ComparedRelation, buckets: int) -> dict[int, Bucket]:
    """PostgreSQL's sums of each bucket."""
    return {b: Bucket(rows=n, total=int(s)) for b, n, s in conn.execute(source_form.buckets_query(relation, buckets))}
