"""What a user can call, on a lake in an object store: retention with an archive, reading, inspection, recovery, teardown.

The pipeline itself is in `test_whole_pipeline_on_s3.py`. Nothing of the lake is on a disk: whatever needs a path fails here.
"""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from datetime import datetime, timezone
from pathlib import Path

import psycopg
import pytest
import yaml
from delta.tables import DeltaTable
from psycopg.sql import SQL
from pyspark.sql import SparkSession

import lakeproof
from lakeproof.cli.main import main
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.commands.maintain import MaintenanceRequest, maintain
from lakeproof.commands.prove import prove
from lakeproof.commands.recover import recover
from lakeproof.commands.status import status
from lakeproof.commands.teardown import teardown
from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config
from lakeproof.config.section.upkeep import RetentionConfig
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.lake.read.spark.changes import CutChanges
from lakeproof.lake.records.store import newest_cut
from lakeproof.names import TableName
from lakeproof.proof.run import ProofRequest
from lakeproof.state.due_copies import recopy
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.compare import lake_rows, source_rows, table_columns
from tests.support.lake.maintain_steps import MUCH_LATER
from tests.support.servers.fix_postgres import Database
from tests.support.spark.fix_lake import options_of
from tests.support.spark.spark_steps import into_the_lake

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.full]
ITEMS = TableName("public", "items")


def _is_the_source(config: Config, database: Database) -> None:
    lake = SourceLake.open(config.location, "shop")
    cut = newest_cut(lake)
    assert cut is not None
    assert not cut.held
    columns, attnums = table_columns(database.dsn, ITEMS)
    place = lake.url(lake.paths.current(ITEMS))
    rows = lake_rows(place, cut.tables[ITEMS].current_version, columns, attnums, options_of(config.storage))
    assert rows == source_rows(database.dsn, (ITEMS,))[ITEMS]


@pytest.fixture
def config(database: Database, s3_lake: LakeLocation, tmp_path: Path) -> Config:
    """A table that was copied and changed in two cycles."""
    database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, note text)",
        "INSERT INTO items SELECT n, md5(n::text) FROM generate_series(1, 300) n",
        "CREATE PUBLICATION pub FOR TABLE items",
    )
    return Config(
        path=tmp_path / "lakeproof.yaml",
        lake=s3_lake.url,
        storage=s3_lake.storage,
        sources={"shop": database.source(tables=(ITEMS,), buckets=8)},
    )


def _in_the_lake(config: Config, database: Database, spark: SparkSession) -> None:
    bootstrap(config, "shop")
    for n in (1, 2):
        database.execute(SQL("UPDATE items SET note = note || 'x' WHERE id % 3 = {n}").format(n=n))
        assert into_the_lake(config, spark)


@pytest.mark.parametrize("archive", ["folder", "bucket"])
def test_history_goes_to_an_archive_and_comes_back(
    config: Config, database: Database, spark: SparkSession, tmp_path: Path, archive: str
) -> None:
    """The archive is a folder of this machine, or beside the lake in its bucket."""
    _in_the_lake(config, database, spark)
    place = str(tmp_path / "archive") if archive == "folder" else config.lake.replace("/data/lake", "/archive")
    retention = RetentionConfig(cuts_s=0, landing_s=0, small_files=2, history_s=1, archive=place)
    source = config.sources["shop"].model_copy(update={"retention": retention})
    kept = config.model_copy(update={"sources": {"shop": source}})
    history = lakeproof.open(spark, kept).table("shop", "public.items", layer="history").count()
    done = maintain(kept, "shop", spark, silent, MaintenanceRequest(now=MUCH_LATER))
    assert done.trimmed == (ITEMS,)
    assert lakeproof.open(spark, kept).table("shop", "public.items", layer="history").count() < history
    # What the trim left behind goes with the next run.
    assert maintain(kept, "shop", spark, silent, MaintenanceRequest(now=MUCH_LATER)).files > 0
    maintain(kept, "shop", spark, silent, MaintenanceRequest(restore=[ITEMS], rebuild=[ITEMS]))
    assert lakeproof.open(spark, kept).table("shop", "public.items", layer="history").count() == history
    _is_the_source(kept, database)
    proof = prove(kept, "shop", None, spark, request=ProofRequest(history=True)).tables[ITEMS]
    assert proof.status == "equal"


def test_readers_find_everything(config: Config, database: Database, spark: SparkSession, tmp_path: Path) -> None:
    """At a cut, at a position, the changes between cuts, a stream of them, and names in SQL."""
    _in_the_lake(config, database, spark)
    opened = lakeproof.open(spark, config)
    cut = opened.cut("shop")
    expected = {tuple(row) for row in opened.table("shop", "public.items").collect()}
    assert {
        tuple(row) for row in lakeproof.as_of(spark, config, cut.position).table("public.items").collect()
    } == expected
    changes = lakeproof.changes(spark, config, 1).table("public.items")
    assert changes.count() == 100
    lakeproof.register(opened, "shop_on_s3", tables=["public.items"])
    assert {tuple(row) for row in spark.sql("SELECT * FROM shop_on_s3.items").collect()} == expected
    delivered: list[int] = []

    def deliver(batch: CutChanges) -> None:
        delivered.append(batch.table("public.items").count())

    query = lakeproof.subscribe(spark, config, deliver, checkpoint=tmp_path / "checkpoint", first=1, available_now=True)
    query.awaitTermination(120)
    assert sum(delivered) == 100


def test_a_damaged_row_is_repaired_and_a_table_copied_again(
    config: Config, database: Database, spark: SparkSession
) -> None:
    """A row that the lake lost comes back by a proof's repair; a held table by its copy."""
    _in_the_lake(config, database, spark)
    lake = SourceLake.open(config.location, "shop")
    place = lake.url(lake.paths.current(ITEMS))
    DeltaTable.forPath(spark, place).delete("id = 5")
    database.execute("UPDATE items SET note = 'x' WHERE id = 9")
    into_the_lake(config, spark)
    cut = newest_cut(lake)
    assert cut is not None
    assert set(cut.held) == {ITEMS}, "somebody else has committed"
    assert status(config).sources["shop"].held
    bootstrap(config, "shop", [ITEMS])
    into_the_lake(config, spark)
    _is_the_source(config, database)
    proof = prove(config, "shop", None, spark, request=ProofRequest(repair=True)).tables[ITEMS]
    assert proof.status == "equal"
    assert recopy(config, "shop", datetime.now(timezone.utc)) is not None


def test_the_slot_is_lost_and_the_command_line_shows_all(
    config: Config, database: Database, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another incarnation in the same lake; then every command that only looks, as a person types it; then teardown."""
    _in_the_lake(config, database, spark)
    monkeypatch.setenv("SHOP_DSN", database.dsn)
    text = {
        "lake": config.lake,
        "storage": config.storage.model_dump(exclude_none=True),
        "sources": {
            "shop": {
                "dsn": {"env": "SHOP_DSN"},
                "publication": config.sources["shop"].publication,
                "slot": config.sources["shop"].slot,
            }
        },
    }
    config.path.write_text(yaml.safe_dump(text), encoding="utf-8")
    landing = f"{config.lake}/shop/landing/000001"
    described = _run(config, "inspect", landing)
    assert int(str(described["manifests"])) >= 3
    lake = SourceLake.open(config.location, "shop")
    files = lake.store.list("shop/landing/000001")
    for file in (next(f for f in files if f.endswith(end)) for end in (".parquet", "0001.json")):
        assert _run(config, "inspect", f"{config.lake}/{file}")
    # No table was ever proved.
    assert _run(config, "status", "--sizes", expected=1)["sources"]
    assert _run(config, "check")
    with psycopg.connect(database.dsn) as connection:
        connection.execute("SELECT pg_drop_replication_slot(%s)", [config.sources["shop"].slot])
    database.execute("DELETE FROM items WHERE id < 20")
    recover(config, "shop")
    drain(config, "shop", Until.caught_up())
    compact(config, "shop", spark, silent, Stop())
    _is_the_source(config, database)
    assert teardown(config, "shop").slot is not None


def _run(config: Config, *arguments: str, expected: int = 0) -> dict[str, object]:
    with redirect_stdout(io.StringIO()) as output:
        code = main([*arguments, "--config", str(config.path), "--json"])
    assert code == expected, output.getvalue()
    document = json.loads(output.getvalue())
    assert isinstance(document, dict)
    return document
