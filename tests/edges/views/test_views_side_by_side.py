"""A fault of one view is reported of that view, and the others are refreshed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.commands.refresh import refresh
from lakeproof.config.model import Config, ViewConfig
from lakeproof.errors import LakeError
from lakeproof.lake.columns import quoted
from lakeproof.lake.records.views.cuts import view_path
from lakeproof.names import TableName
from lakeproof.proof.record import read_record
from lakeproof.proof.run import ProofRequest
from lakeproof.storage.open import open_store
from lakeproof.storage.source_lake import SourceLake
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import into_the_lake

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

VIEWS = ("a_renamed", "b_locked", "c_emptied", "d_right")


@pytest.mark.full
def test_what_is_wrong_with_one_view_is_no_matter_of_the_others(
    database: Database, tmp_path: Path, spark: SparkSession
) -> None:
    """A column that was renamed in the source, a table that Delta may not change, one whose files are gone."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        "INSERT INTO t SELECT i, i FROM generate_series(1, 4) i",
        "CREATE PUBLICATION pub FOR TABLE t",
    )
    views = {}
    for name in VIEWS:
        file = tmp_path / f"{name}.sql"
        file.write_text("SELECT v FROM t" if name == "a_renamed" else "SELECT id FROM t", encoding="utf-8")
        views[name] = ViewConfig(name=name, sql_file=file, reads={"t": ("shop", TableName("public", "t"))})
    source = database.source(buckets=16)
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": source}, views=views)
    bootstrap(config, "shop")
    into_the_lake(config, spark)
    assert {result.view: result.stands_still for result in refresh(config, None, spark)} == dict.fromkeys(VIEWS)
    place = f"delta.{quoted(view_path(open_store(config.lake), 'b_locked'))}"
    spark.newSession().sql(f"ALTER TABLE {place} SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    for file in Path(view_path(open_store(config.lake), "c_emptied")).glob("cycle-*/*.parquet"):
        file.unlink()
    database.execute("ALTER TABLE t RENAME v TO w", "DELETE FROM t WHERE id = 1")
    into_the_lake(config, spark)
    still = {result.view: result.stands_still for result in refresh(config, None, spark)}
    assert still["d_right"] is None
    assert "UNRESOLVED_COLUMN" in (still["a_renamed"] or "")
    assert "delta.appendOnly" in (still["b_locked"] or "")
    with pytest.raises(LakeError, match=r"FILE_NOT_EXIST.*move that folder away"):
        refresh(config, "c_emptied", spark)
    Path(view_path(open_store(config.lake), "c_emptied")).rename(tmp_path / "away")
    assert refresh(config, "c_emptied", spark)[0].inserted == 3


@pytest.mark.full
def test_a_damaged_log_of_one_view_ends_no_proof(database: Database, tmp_path: Path, spark: SparkSession) -> None:
    """The damaged view is recorded as not compared each time; the other view and the history are recorded as equal."""
    table = TableName("public", "t")
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "INSERT INTO t SELECT generate_series(1, 4)",
        "CREATE PUBLICATION pub FOR TABLE t",
    )
    file = tmp_path / "view.sql"
    file.write_text("SELECT id FROM t", encoding="utf-8")
    views = {n: ViewConfig(name=n, sql_file=file, reads={"t": ("shop", table)}) for n in ("a_damaged", "b_right")}
    source = database.source(buckets=4)
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": source}, views=views)
    bootstrap(config, "shop")
    into_the_lake(config, spark)
    refresh(config, None, spark)
    (commit,) = (Path(view_path(open_store(config.lake), "a_damaged")) / "_delta_log").glob("*.json")
    commit.write_bytes(commit.read_bytes()[:-20])
    lake = SourceLake.open(config.lake, "shop")
    for _ in range(2):
        actual = prove(config, "shop", None, spark, request=ProofRequest(history=True))
        assert actual.tables[table].status == "equal"
        assert {name: proof.status for name, proof in read_record(lake).views.items()} == {
            "a_damaged": "blocked",
            "b_right": "equal",
        }
        assert "can't be read: " in (read_record(lake).views["a_damaged"].reason or "")
        history = read_record(lake).tables[table].history
        assert history is not None
        assert history.status == "equal"
