"""A publication that does not send all actions excuses what those can have made: damage is damage beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.names import TableName
from lakeproof.proof.result import TableProof
from lakeproof.storage.source_lake import SourceLake
from tests.support.faults.damage import alter, data_files
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE, into_the_lake

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]
_T = TableName("public", "t")


def _renamed(rows: pa.Table) -> pa.Table:
    """Write another value into the row of the least key."""
    ids = rows.column("id")
    values = pc.if_else(pc.equal(ids, pc.min(ids)), "w", rows.column("v"))
    return rows.set_column(rows.column_names.index("v"), "v", values)


def test_damage_is_no_truncate(database: Database, spark: SparkSession, tmp_path: Path) -> None:
    """Without `truncate`, as many publish: what a TRUNCATE left is excused, damage beside it differs and is repaired.

    Damage alone is in `tests/edges/proof/test_proof_corruptions.py`.
    """
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT i, 'v' FROM generate_series(1, 9) i",
        "CREATE PUBLICATION pub FOR TABLE t WITH (publish = 'insert, update, delete')",
    )
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source(buckets=4)})
    lake = SourceLake.open(config.lake, "shop")
    current = Path(lake.url(lake.paths.current(_T)))

    def proven(*, repair: bool = False) -> TableProof:
        return prove(config, "shop", None, spark, request=replace(TABLES_ALONE, repair=repair)).tables[_T]

    bootstrap(config, "shop")
    into_the_lake(config, spark)
    database.execute("TRUNCATE t", "INSERT INTO t VALUES (20, 'after')")
    truncated = proven()
    assert (truncated.status, truncated.source_rows, truncated.lake_rows) == ("not applicable", 1, 10)
    assert "accounts for 9 rows too many in the lake" in (truncated.reason or "")
    newest = data_files(current)[-1]
    alter(newest, _renamed)
    beside = proven()
    assert (beside.status, [dict(k.key) for k in beside.differing_keys]) == ("differs", [{"id": "20"}])
    repaired = proven(repair=True)
    assert (repaired.status, repaired.lake_rows) == ("equal", 1)
