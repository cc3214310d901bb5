"""`lakeproof.read`: what it gives without Spark is what Spark gives, for each kind of column and after changes of a table.

Other readers of the lake's tables are in `test_readers_page.py`.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typing_extensions import LiteralString

import lakeproof
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.refresh import refresh
from lakeproof.config.model import Config, ViewConfig
from lakeproof.errors import ConfigError, LakeError
from lakeproof.lake.read.arrow.open import Rows
from lakeproof.lake.read.spark.open import LakeFrame
from lakeproof.names import TableName
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import into_the_lake
from tests.support.workloads.lake_workload import SEED

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

COLUMNS = (
    "id int PRIMARY KEY, b bool, s int2, i int4, l int8, f real, d double precision, n numeric(12, 2), m numeric,"
    " t text DEFAULT 'x', y bytea, day date, at timestamp, tz timestamptz, u uuid DEFAULT gen_random_uuid(), j jsonb,"
    ' a int[], w text[], h time, v interval, "a name, with a blank" text, large text'
)
NEW_ROWS = (
    'INSERT INTO kinds (id, b, s, i, l, f, d, n, m, y, day, at, tz, j, a, w, h, v, "a name, with a blank", large)'
    " SELECT n, n %% 2 = 0, n, n * 100000, n * 10000000000, n / 3.0, 'NaN', n * 1.25, n / 7.0, decode(md5(n::text), 'hex'),"
    " date '0001-01-01' + n * 20000, timestamp '1500-01-01' + n * interval '31 days',"
    " timestamptz '2300-01-01 00:00Z' + n * interval '1.000001 s', jsonb_build_object('n', n), ARRAY[n, NULL, 3],"
    " ARRAY['x', 'y' || n], time '12:00:00.000001', n * interval '1 day', 'q' || n, repeat(md5(n::text), 100)"
    " FROM generate_series(%s::int, %s::int) n"
)
CHANGES = (
    "DELETE FROM kinds WHERE id %% 7 = %s::int",
    "UPDATE kinds SET i = NULL, j = NULL, a = NULL WHERE id %% 5 = %s::int",
    "UPDATE kinds SET id = -id WHERE id %% 11 = %s::int",
)
ALTERED: tuple[LiteralString, ...] = (
    "ALTER TABLE kinds RENAME t TO renamed",
    "ALTER TABLE kinds DROP u",
    "ALTER TABLE kinds ALTER n TYPE numeric(20, 2)",
    "ALTER TABLE kinds ADD z int",
    "ALTER TABLE kinds ADD ten int DEFAULT 10",
)


@pytest.fixture
def config(database: Database, tmp_path: Path) -> Config:
    """A table of many kinds that is copied, and a view of it."""
    with database.connect() as conn:
        conn.execute(f"CREATE TABLE kinds ({COLUMNS})")
        conn.execute("ALTER TABLE kinds ALTER large SET STORAGE EXTERNAL")
        conn.execute("CREATE PUBLICATION pub FOR TABLE kinds")
        conn.execute(NEW_ROWS, (1, 300))
    (tmp_path / "few.sql").write_text("SELECT l, count(*) AS number FROM kinds WHERE l > 0 GROUP BY l")
    view = ViewConfig(
        name="few", sql_file=tmp_path / "few.sql", reads={"kinds": ("shop", TableName("public", "kinds"))}
    )
    source = database.source(buckets=16)
    lake = str(tmp_path / "lake")
    return Config(path=tmp_path / "w.yaml", lake=lake, sources={"shop": source}, views={"few": view})


def _sorted(rows: pa.Table) -> list[str]:
    return sorted(str(tuple(row.values())) for row in rows.to_pylist())


def _same(rows: Rows, by_spark: LakeFrame) -> None:
    """Compare columns, types and rows."""
    mine, theirs = rows.arrow(), by_spark.arrow()
    assert mine.schema.names == theirs.schema.names
    for ours, other in zip(mine.schema, theirs.schema, strict=True):
        assert str(ours.type) == str(other.type), ours.name
    assert mine.num_rows == theirs.num_rows
    assert _sorted(mine) == _sorted(theirs), f"seed {SEED}"


def test_what_is_read_is_what_spark_reads(database: Database, config: Config, spark: SparkSession) -> None:
    """After a copy, after changes that leave deletion vectors, and after renamed, dropped, added and wider columns."""
    chance = random.Random(SEED)
    bootstrap(config, "shop")
    into_the_lake(config, spark)
    for number in range(2):
        with database.connect() as conn:
            conn.execute(NEW_ROWS, (1000 * (number + 1), 1000 * (number + 1) + 40))
            for statement in CHANGES:
                conn.execute(statement, (chance.randrange(5),))
        if number == 0:
            database.execute(*ALTERED)
        into_the_lake(config, spark)
        mine, theirs = lakeproof.read(config), lakeproof.open(spark, config)
        _same(mine.table("shop", "public.kinds"), theirs.table("shop", "public.kinds"))
        hidden = theirs.table("shop", "public.kinds", hidden=True)
        _same(mine.table("shop", "public.kinds", hidden=True), hidden)
    (refreshed,) = refresh(config, "few", spark)
    assert refreshed.stands_still is None
    mine, theirs = lakeproof.read(config), lakeproof.open(spark, config)
    _same(mine.view("few"), theirs.view("few"))
    history = mine.history("shop", "public.kinds")
    assert history.arrow().num_rows == theirs.table("shop", "public.kinds", layer="history").count()
    _same(
        lakeproof.read(config, at=1).table("shop", "public.kinds"),
        lakeproof.open(spark, config, at=1).table("shop", "public.kinds"),
    )
    _check_frames(mine.table("shop", "public.kinds"), theirs.table("shop", "public.kinds"), database)
    _check_process(config)
    _check_errors(mine.table("shop", "public.kinds"))


def _check_frames(rows: Rows, by_spark: LakeFrame, database: Database) -> None:
    """Frames have the source's values, NULL in a column of integers too, and a selection has its columns alone."""
    chosen = rows.select("id", "i", "renamed")
    selected = by_spark.select("id", "i", "renamed")
    frame = chosen.pandas()
    source = database.rows("SELECT id, i, renamed FROM kinds ORDER BY id")
    assert [tuple(None if v is None else v for v in row) for row in sorted(_as_python(chosen.arrow()))] == source
    by_id = selected.orderBy("id").pandas()
    assert by_id.equals(frame.sort_values("id", ignore_index=True))
    assert by_id.dtypes.equals(frame.dtypes)
    assert selected.where("i IS NULL").limit(3).pandas(rows_max=3).shape == (3, 3)
    for read in (chosen.pandas, selected.pandas, chosen.arrow, selected.arrow):
        assert len(read(rows_max=len(source))) == len(read(rows_max=None)) == len(source)
        with pytest.raises(LakeError, match=f"there are more than {len(source) - 1:,}; .*rows_max"):
            read(rows_max=len(source) - 1)
    assert str(frame["i"].dtype) == "int32[pyarrow]"
    assert frame["i"].isna().sum() == sum(row[1] is None for row in source) > 0
    assert chosen.reader().read_all().num_rows == len(source)
    assert rows.select("ten").arrow().column("ten").unique().to_pylist() == [10]


def _as_python(table: pa.Table) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def _check_process(config: Config) -> None:
    """A process that reads loads no Spark."""
    code = (
        "import sys, lakeproof; print(lakeproof.read(sys.argv[1]).table('shop', 'public.kinds').arrow().num_rows);"
        "assert not {'pyspark', 'py4j', 'deltalake'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, config.lake], capture_output=True, text=True, check=True)
    assert int(done.stdout) == lakeproof.read(config).table("shop", "public.kinds").arrow().num_rows


def _check_errors(rows: Rows) -> None:
    """A column that is not there, then a table's folder with a damaged vector, a missing file, and an unknown feature."""
    with pytest.raises(ConfigError, match="there is none of that name"):
        rows.select("gone")
    folder = Path(rows.delta.table.url)
    vectors = [file for file in rows.delta.files if file.deleted is not None and file.deleted.file]
    assert vectors
    vector = folder / str(vectors[0].vector)
    data = bytearray(vector.read_bytes())
    data[-6] ^= 0xFF
    vector.write_bytes(bytes(data))
    with pytest.raises(LakeError, match="a deletion vector is damaged"):
        rows.arrow()
    vector.unlink()
    with pytest.raises(LakeError, match="a deletion vector is missing"):
        rows.arrow()
    (folder / vectors[0].path).unlink()
    with pytest.raises(LakeError, match="is missing"):
        rows.select("id").arrow()
