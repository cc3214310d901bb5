"""The power goes after files were put together and before they are synced: what was written is there in half.

A commit that changes no row was kept as it was by the next attempt, whose cut then named files that nobody could read.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.maintain import maintain
from lakeproof.commands.prove import prove
from lakeproof.config.section.upkeep import RetentionConfig
from lakeproof.events import silent
from lakeproof.failpoints import watched
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.names import TableName
from lakeproof.proof.run import ProofRequest
from tests.support.faults.crashes import Crash
from tests.support.ingest.fix_drain import SOURCE, make_config
from tests.support.lake.proof_steps import WITHOUT, into_the_lake, wrong_in
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres
TABLE = TableName("public", "t")


def _crash(name: str) -> None:
    if name == "cycle.after_tables":
        raise Crash(name)


def test_the_lake_equals_the_source_and_history_is_whole(database: Database, tmp_path: Path) -> None:
    """Both layers were put together; the files from before are the table again, and are put together once more."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE PUBLICATION shop FOR ALL TABLES")
    config = make_config(database.dsn, tmp_path / "lake", database.name)
    bootstrap(config, SOURCE)
    for number in range(4):
        database.execute(f"INSERT INTO t SELECT n, 'v' FROM generate_series({10 * number}, {10 * number + 9}) n")  # noqa: S608  (of this test)
        into_the_lake(config)
    before = read_lake(config).history(SOURCE, TABLE).arrow().sort_by("_lp_ord")
    source = config.sources[SOURCE].model_copy(update={"retention": RetentionConfig(small_files=2)})
    packing = config.model_copy(update={"sources": {SOURCE: source}})
    whole = set((tmp_path / "lake").rglob("*.parquet"))
    with watched(_crash), pytest.raises(Crash):
        maintain(packing, SOURCE, WITHOUT, silent)
    written = set((tmp_path / "lake").rglob("*.parquet")) - whole
    assert {file.parents[1].parent.name for file in written} == {"history", "current"}
    for file in written:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    maintain(packing, SOURCE, WITHOUT, silent)
    assert read_lake(config).history(SOURCE, TABLE).arrow().sort_by("_lp_ord") == before
    database.execute("UPDATE t SET v = 'w' WHERE id % 3 = 0")
    proof = prove(config, SOURCE, None, WITHOUT, request=ProofRequest(history=True))
    assert wrong_in(proof) == {}
