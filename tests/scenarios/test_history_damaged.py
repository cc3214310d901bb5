"""History that was altered, doubled or lost is found by the proof, and current is not made from it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.maintain import MaintenanceRequest, maintain
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.config.section.upkeep import RetentionConfig
from lakeproof.errors import LakeError
from lakeproof.events import silent
from lakeproof.lake.records.store import newest_cut
from lakeproof.names import TableName
from lakeproof.proof.record import read_record
from lakeproof.proof.run import ProofRequest
from lakeproof.storage.source_lake import SourceLake
from tests.support.faults.damage import alter, data_files
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import into_the_lake

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]
_TABLES = ("altered", "doubled", "lost", "bag", "changed")


def _table(name: str) -> TableName:
    return TableName("public", name)


def _wrong(rows: pa.Table) -> pa.Table:
    """Write another value into every row."""
    return rows.set_column(rows.column_names.index("v"), "v", pc.binary_replace_slice(rows.column("v"), 0, 1, "W"))


def _twice(rows: pa.Table) -> pa.Table:
    """The first row again, in place of the last."""
    return pa.concat_tables([rows.slice(0, rows.num_rows - 1), rows.slice(0, 1)])


def test_damage_to_history_is_found(database: Database, spark: SparkSession, tmp_path: Path) -> None:
    """Whole histories are proved, through changes of schema and maintenance; then each kind of damage alone."""
    for name in _TABLES:
        key = "" if name == "bag" else " PRIMARY KEY"
        database.execute(f"CREATE TABLE {name} (id int{key}, v text)")
        database.execute(f"INSERT INTO {name} SELECT i, 'value ' || i FROM generate_series(1, 20) i")  # noqa: S608  its own names
    database.execute("ALTER TABLE bag REPLICA IDENTITY FULL")
    database.execute(f"CREATE PUBLICATION pub FOR TABLE {', '.join(_TABLES)}")
    source = database.source(buckets=4, retention=RetentionConfig(small_files=2))
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})
    lake = SourceLake.open(config.lake, "shop")
    bootstrap(config, "shop")
    into_the_lake(config, spark)
    for name in _TABLES:
        database.execute(f"UPDATE {name} SET v = v || '!' WHERE id < 5")  # noqa: S608  its own names
        database.execute(f"DELETE FROM {name} WHERE id = 7")  # noqa: S608  its own names
    database.execute("ALTER TABLE changed ADD w int DEFAULT 5", "ALTER TABLE changed RENAME v TO text")
    database.execute("INSERT INTO changed VALUES (50, 'new', 6)")
    into_the_lake(config, spark)
    maintain(config, "shop", spark, silent)
    whole = prove(config, "shop", None, spark, request=ProofRequest(history=True))
    assert whole.damaged == {}
    assert whole.equal
    assert whole.lake is not None
    assert {t.name: p.status for t, p in whole.lake.histories.items()} == dict.fromkeys(_TABLES, "equal")

    folders = {name: Path(lake.url(lake.paths.history(_table(name)))) for name in _TABLES}
    alter(data_files(folders["altered"])[-1], _wrong)
    alter(data_files(folders["bag"])[-1], _wrong)
    alter(data_files(folders["doubled"])[-1], _twice)
    data_files(folders["lost"])[-1].unlink()
    damaged = prove(config, "shop", None, spark, request=ProofRequest(history=True))
    assert {p.status for p in damaged.tables.values()} == {"equal"}, "current has nothing of it"
    assert not damaged.equal
    assert damaged.lake is not None
    actual = {t.name: p.status for t, p in damaged.lake.histories.items()}
    assert actual == dict.fromkeys(("altered", "doubled", "lost", "bag"), "damaged") | {"changed": "equal"}
    recorded = read_record(lake).tables
    assert {t.name: p.history.status for t, p in recorded.items() if p.history is not None} == actual

    before = newest_cut(lake)
    for name in ("altered", "lost"):
        with pytest.raises(LakeError, match="from a history that is damaged"):
            maintain(config, "shop", spark, silent, MaintenanceRequest(rebuild=[_table(name)]))
    assert newest_cut(lake) == before
