"""Every type that a column can have: the same value by snapshot and by stream, and the proof form that PostgreSQL gives it.

The database and the role have defaults that would print every value otherwise. Types and values are in `every_type.py`.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg import sql
from pydantic import SecretStr
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakeproof.config.model import SourceConfig
from lakeproof.landing.segments.file_columns import file_names
from lakeproof.landing.segments.reader import file_url
from lakeproof.names import TableName
from lakeproof.postgres.catalog.published import read_tables, with_sizes
from lakeproof.postgres.catalog.tables import PublishedTable
from lakeproof.postgres.connections.connect import Connection, connect
from lakeproof.postgres.copying.snapshot import SnapshotSession, chunks, copy_chunk, typed
from lakeproof.schema import SchemaVersion
from tests.core.pgoutput.pgoutput_same import comparable
from tests.edges.values.every_type import (
    DEFINITIONS,
    EXTENSIONS,
    FROM_CATALOG,
    STATISTICS,
    ColumnType,
    column_types,
    large_values,
)
from tests.edges.values.exact_forms import assert_same_forms, source_digests
from tests.edges.values.exact_tables import relation_of
from tests.support.ingest.fix_drain import SOURCE, Drained
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres

# What a database may be set to; each changes how some values are printed.
_OF_DATABASE = {
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "sql_standard",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "TimeZone": "Asia/Kolkata",
    "client_encoding": "LATIN1",
    "quote_all_identifiers": "on",
    "standard_conforming_strings": "off",
    "search_path": "hostile, exact, contrib",
}
# And a role, which wins over the database.
_OF_ROLE = {
    "DateStyle": "German",
    "IntervalStyle": "iso_8601",
    "extra_float_digits": "-4",
    "TimeZone": "America/St_Johns",
    "row_security": "on",
}
_COLUMNS_PER_TABLE = 70


@pytest.fixture
def hostile(database: Database, tmp_path: Path) -> Drained:
    """A source whose database and role have other defaults, and the schemas `exact` and `contrib`."""
    dsn = database.role("LOGIN SUPERUSER")
    role = database.roles[-1]
    with database.connect() as conn:
        for name, value in _OF_DATABASE.items():
            conn.execute(
                sql.SQL("ALTER DATABASE {} SET {} = {}").format(
                    sql.Identifier(database.name), sql.Identifier(name), sql.Literal(value)
                )
            )
        for name, value in _OF_ROLE.items():
            conn.execute(
                sql.SQL("ALTER ROLE {} SET {} = {}").format(
                    sql.Identifier(role), sql.Identifier(name), sql.Literal(value)
                )
            )
    with psycopg.connect(dsn) as conn:
        printed = conn.execute(
            "SELECT timestamptz '2024-02-01 00:00Z' || ' ' || interval '-1 day' || ' ' || (float8 '0.1' + 0.2) || ' '"
            " || text(decode('ff', 'hex'))"
        ).fetchone()
    assert printed == (r"31.01.2024 20:30:00 NST P-1D 0.3 \377",)
    source = Drained(replace(database, dsn=dsn), tmp_path / "lake")
    with connect(SecretStr(dsn)) as conn:
        conn.execute("CREATE SCHEMA exact")
        conn.execute("CREATE SCHEMA contrib")
        conn.execute("CREATE SCHEMA hostile")
        conn.execute("SET search_path = exact, contrib")
        there = {name for (name,) in conn.execute("SELECT name FROM pg_available_extensions").fetchall()}
        for extension in (name for name in EXTENSIONS if name in there):
            conn.execute(sql.SQL("CREATE EXTENSION {} SCHEMA contrib CASCADE").format(sql.Identifier(extension)))
        conn.execute(DEFINITIONS)
    database.execute("CREATE PUBLICATION shop FOR ALL TABLES")
    return source


def test_every_type_is_the_same_by_both_roads(hostile: Drained) -> None:
    """All types of pg_catalog, of the extensions and our own, arrays of all of them, with their extremes."""
    _both_roads(hostile, _every_type(hostile))


@pytest.mark.full
@pytest.mark.spark
def test_every_type_has_the_proof_form_of_the_source(hostile: Drained, spark: SparkSession, tmp_path: Path) -> None:
    """Spark computes the same forms; `test_exact_forms.py` has some of the types in `make test`, with random values."""
    _same_forms(hostile, _both_roads(hostile, _every_type(hostile)), spark, tmp_path)


def _every_type(hostile: Drained) -> list[TableName]:
    """Tables of all types, filled after the slot was made."""
    with connect(SecretStr(hostile.dsn)) as conn:
        conn.execute("SET search_path = exact, contrib")
        types = [t for namespace in ("pg_catalog", "contrib", "exact") for t in column_types(conn, namespace)]
        conn.execute(STATISTICS)
        _refused(conn, [t for t in types if t.impossible])
        possible = [t for t in types if not t.impossible]
        assert len(possible) > 480
        tables = [
            (TableName("exact", f"t{i}"), possible[i : i + _COLUMNS_PER_TABLE])
            for i in range(0, len(possible), _COLUMNS_PER_TABLE)
        ]
        for table, own in tables:
            _create(conn, table, own)
        hostile.begin()
        for table, own in tables:
            _fill(conn, table, own)
    return [table for table, _ in tables]


@pytest.mark.full
@pytest.mark.spark
def test_values_of_a_megabyte_are_the_same_by_both_roads_and_in_the_proof(
    hostile: Drained, spark: SparkSession, tmp_path: Path
) -> None:
    """Covers every type of unlimited length; the values are stored out of line."""
    values = large_values(1)
    types = [ColumnType(name, name, (value,), impossible=False) for name, value in values.items()]
    table = TableName("exact", "large")
    with connect(SecretStr(hostile.dsn)) as conn:
        conn.execute("SET search_path = exact, contrib")
        _create(conn, table, types)
        hostile.begin()
        _fill(conn, table, types)
    _same_forms(hostile, _both_roads(hostile, [table]), spark, tmp_path)


def _refused(conn: Connection, types: Sequence[ColumnType]) -> None:
    """No column can have these types."""
    assert {t.name for t in types} >= {"_cstring", "pg_statistic", "_pg_statistic"}
    for one in types:
        with pytest.raises(psycopg.errors.InvalidTableDefinition, match="pseudo-type"), conn.transaction():
            conn.execute(sql.SQL("CREATE TABLE none (a {})").format(sql.SQL(one.declared)))


def _create(conn: Connection, table: TableName, types: Sequence[ColumnType]) -> None:
    columns = [sql.SQL("c{} {}").format(sql.SQL(str(i)), sql.SQL(t.declared)) for i, t in enumerate(types)]
    conn.execute(
        sql.SQL("CREATE TABLE {} (id int PRIMARY KEY, {})").format(
            sql.Identifier(table.schema, table.name), sql.SQL(", ").join(columns)
        )
    )


def _fill(conn: Connection, table: TableName, types: Sequence[ColumnType]) -> None:
    """Row i has every type's i-th value, NULL if there is none, so the last has NULLs alone."""
    height = max(len(t.values) for t in types) + 1
    name = sql.Identifier(table.schema, table.name)
    with conn.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(name)) as copy:
        for row in range(height):
            copy.write_row([str(row), *(t.values[row] if row < len(t.values) else None for t in types)])
    for i, one in enumerate(types):
        if one.name in FROM_CATALOG:
            query = sql.SQL("INSERT INTO {} (id, c{}) ({})").format(
                name, sql.SQL(str(i)), sql.SQL("SELECT {}, ({})").format(height + i, sql.SQL(FROM_CATALOG[one.name]))
            )
            assert conn.execute(query).rowcount == 1


def _same_forms(
    source: Drained, rows: Sequence[tuple[SchemaVersion, pa.Table]], spark: SparkSession, folder: Path
) -> None:
    """The digests of the landed rows in Spark are those that PostgreSQL makes of its own."""
    for version, table in rows:
        path = folder / f"{version.table.name}.parquet"
        pq.write_table(table, path)
        landed = spark.read.parquet(str(path))
        named = [F.col(name).alias(c.name) for name, c in zip(file_names(version), version.columns, strict=True)]
        with connect(SecretStr(source.dsn)) as conn:
            digests = source_digests(conn, relation_of(version))
        in_files = table.select([*file_names(version), "_lp_text"])
        renamed = in_files.rename_columns([*(c.name for c in version.columns), "_lp_text"])
        assert_same_forms(digests, landed.select(*named, F.col("_lp_text")), renamed.to_batches(), version)


def _both_roads(source: Drained, tables: Sequence[TableName]) -> list[tuple[SchemaVersion, pa.Table]]:
    """Holds the rows of the stream equal to those of a snapshot, and gives them."""
    source.drain()
    streamed = _streamed(source, tables)
    copied = _copied(source, tables)
    assert set(streamed) == set(copied) == set(tables)
    for table in tables:
        version, by_snapshot = copied[table]
        same, by_stream = streamed[table]
        assert same == version
        assert by_snapshot.num_rows == by_stream.num_rows > 0
        for place, name in enumerate(by_snapshot.schema.names):
            one, other = comparable(by_snapshot.column(name)), comparable(by_stream.column(name))
            assert one.equals(other), f"{table}.{name} {version.columns[place - 1] if place else ''}"
    return [streamed[table] for table in tables]


def _streamed(source: Drained, tables: Sequence[TableName]) -> dict[TableName, tuple[SchemaVersion, pa.Table]]:
    """The landed inserts, in the order of their id."""
    chain = source.chain()
    actual: dict[TableName, tuple[SchemaVersion, list[pa.Table]]] = {}
    for manifest in chain.manifests():
        versions = {entry.version.id: entry.version for entry in manifest.schemas}
        for file in manifest.files:
            if file.table in tables:
                assert file.rows == file.counts.inserts
                rows = pq.read_table(file_url(chain, file))
                actual.setdefault(file.table, (versions[file.schema_id], []))[1].append(rows)
    return {table: (version, _ordered(version, parts)) for table, (version, parts) in actual.items()}


def _copied(source: Drained, tables: Sequence[TableName]) -> dict[TableName, tuple[SchemaVersion, pa.Table]]:
    """Copy the same rows by a snapshot."""
    config: SourceConfig = source.config().source(SOURCE)
    actual = {}
    with (
        SnapshotSession(SecretStr(source.dsn), f"snap_{secrets.token_hex(4)}", temporary=True) as session,
        session.connect() as conn,
    ):
        published: Sequence[PublishedTable] = with_sizes(conn, read_tables(conn, config, only=tables).values())
        for table in published:
            batches = [typed(b, part) for part in chunks(table, 1000) for b in copy_chunk(conn, part)]
            rows = pa.Table.from_batches(batches).rename_columns(["_lp_text", *file_names(table.version)])
            actual[table.table] = (table.version, _ordered(table.version, [rows]))
    return actual


def _ordered(version: SchemaVersion, parts: Sequence[pa.Table]) -> pa.Table:
    names = ["_lp_text", *file_names(version)]
    return pa.concat_tables([part.select(names) for part in parts]).sort_by("id").combine_chunks()
