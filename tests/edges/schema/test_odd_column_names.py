"""Columns of any name come through files and tables under it: copied, streamed in one segment with renames, proved equal."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from psycopg.sql import SQL, Identifier

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.file_columns import file_names
from lakeproof.landing.segments.reader import file_url
from lakeproof.names import Incarnation, TableName
from lakeproof.storage.source_lake import SourceLake
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE, into_the_lake

pytestmark = [pytest.mark.postgres]
_T = TableName("public", "t")
# The key is a path to Arrow, a name has characters that Parquet refuses, is a list's path, differs by its case, is hidden.
_KEY = ".k"
_NAMES = (
    "a.b",
    "a`b",
    "a b;{}",
    "A",
    "a",
    "_lp_ord",
    "_lp_op",
    "#4#",
    "x.list.element",
    'q"[0]',
    "é\n",
    "c0",
    "_metadata",
)


def _change(database: Database, number: int) -> None:
    """An insert, an update and a delete that touch every column."""
    with database.connect() as conn:
        names = [
            Identifier(row[0])
            for row in conn.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 AND NOT attisdropped"
                " AND atttypid = 'text'::regtype ORDER BY attnum"
            ).fetchall()
        ]
        columns = SQL(", ").join([Identifier(_KEY), Identifier("x"), *names])
        values = SQL(", ").join(SQL("{} || g").format(str(i)) for i in range(len(names)))
        insert = SQL("INSERT INTO t ({}) SELECT g, ARRAY[g, NULL], {} FROM generate_series({}::int, {}::int) g")
        conn.execute(insert.format(columns, values, number, number + 4))
        assignments = SQL(", ").join(SQL("{} = {} || '!'").format(name, name) for name in names)
        conn.execute(SQL("UPDATE t SET {} WHERE {} = {}").format(assignments, Identifier(_KEY), number + 1))
        conn.execute(SQL("DELETE FROM t WHERE {} = {}").format(Identifier(_KEY), number + 2))


def test_columns_of_any_name_are_equal_at_the_end(database: Database, no_spark: SparkOnDemand, tmp_path: Path) -> None:
    """Several versions of the table are in one segment; each file has the names of its own."""
    columns = SQL(", ").join(SQL("{} text").format(Identifier(name)) for name in _NAMES)
    with database.connect() as conn:
        conn.execute(SQL("CREATE TABLE t ({} int PRIMARY KEY, x int[], {})").format(Identifier(_KEY), columns))
        conn.execute("CREATE PUBLICATION pub FOR TABLE t")
    _change(database, 0)
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source(buckets=4)})
    bootstrap(config, "shop")
    into_the_lake(config, no_spark)
    _change(database, 10)
    into_the_lake(config, no_spark)
    for number, change in enumerate(
        ('RENAME "a.b" TO "c d.e"', 'RENAME "A" TO "b"', 'DROP "_lp_op"', 'ADD "_LP_OP" text', 'RENAME a TO "A"')
    ):
        database.execute(f"ALTER TABLE t {change}")
        _change(database, 20 + 10 * number)
    into_the_lake(config, no_spark)
    _change(database, 90)
    proof = prove(config, "shop", None, no_spark, request=TABLES_ALONE).tables[_T]
    assert (proof.status, proof.reason) == ("equal", None)
    chain = Chain.open(SourceLake.open(config.lake, "shop"), Incarnation(1))
    manifests = list(chain.manifests())
    versions = {entry.version.id: entry.version for manifest in manifests for entry in manifest.schemas}
    assert max(len(manifest.files) for manifest in manifests) >= 5
    for file in (file for manifest in manifests for file in manifest.files):
        assert set(file_names(versions[file.schema_id])) <= set(pq.read_schema(file_url(chain, file)).names)
