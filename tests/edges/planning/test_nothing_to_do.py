"""A compaction that has work and one that has none: the answer is its own plan, after each change in the source."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typing_extensions import LiteralString

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.commands.prove import prove
from lakeproof.commands.status import status
from lakeproof.compaction.pending import compaction_has_work
from lakeproof.config.model import Config
from lakeproof.drain.until import Until
from lakeproof.errors import LakeError
from lakeproof.events import Stop, silent
from lakeproof.lake.records.store import newest_cut
from lakeproof.landing.chain import Chain
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE, into_the_lake

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

_WORK: tuple[tuple[LiteralString, bool], ...] = (
    ("INSERT INTO unpublished VALUES (1)", False),
    ("INSERT INTO t VALUES (2, 'b')", True),
    ("CREATE INDEX ON t (v)", False),
    # No row of the table comes: the catalog's record alone brings the schema, or the reason to hold it.
    ("ALTER TABLE t ADD note text", True),
    ("ALTER TABLE other ALTER v TYPE text USING v::text || 'x'", True),
)


def test_a_compaction_has_work_if_it_writes_more_than_its_position(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    """Asked without Spark; the compaction then writes something, or the cut stays where it is."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE TABLE other (id int PRIMARY KEY, v int)",
        "CREATE TABLE unpublished (n int)",
        "INSERT INTO t VALUES (1, 'a')",
        "INSERT INTO other VALUES (1, 1)",
        "CREATE PUBLICATION pub FOR TABLE t, other",
    )
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source(buckets=8)})
    with pytest.raises(LakeError, match="lakeproof bootstrap shop"):
        compaction_has_work(config, "shop")
    bootstrap(config, "shop")
    assert compaction_has_work(config, "shop"), "a snapshot waits"
    into_the_lake(config, spark)
    assert not compaction_has_work(config, "shop")
    lake = SourceLake.open(config.lake, "shop")
    for statement, work in _WORK:
        database.execute(statement)
        drain(config, "shop", Until.caught_up())
        cut, chain = newest_cut(lake), Chain.open_newest(lake)
        assert cut is not None
        assert chain is not None
        assert chain.end > cut.position, "the landing has moved on in any case"
        assert compaction_has_work(config, "shop") == work, statement
        coming = status(config).sources["shop"].coming
        if work:
            before = cut.number
            compact(config, "shop", spark, silent, Stop())
            cut = newest_cut(lake)
            assert cut is not None
            assert cut.number > before
            assert (coming or {}).keys() == cut.held.keys(), statement
            assert {t: h.reason for t, h in (coming or {}).items()} == {t: h.reason for t, h in cut.held.items()}
            assert not compaction_has_work(config, "shop"), statement
    other, last = TableName("public", "other"), newest_cut(lake)
    assert last is not None
    assert set(last.held) == {other}
    bootstrap(config, "shop", [other])
    assert compaction_has_work(config, "shop"), "a snapshot waits again"
    into_the_lake(config, spark)
    assert not compaction_has_work(config, "shop")
    assert prove(config, "shop", None, spark, request=TABLES_ALONE).equal
