"""A proof and the cycles beside it: the lake goes on while both sides are read, and the result is that of the position.

What a proof compares is in `test_proof_whole.py`.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.maintain import maintain
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.config.section.upkeep import RetentionConfig
from lakeproof.errors import TransientError
from lakeproof.events import Event, RunControl, silent
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import TableName
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake
from tests.support.faults.damage import alter, data_files
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE, into_the_lake

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
ITEMS = TableName("public", "items")


def _one_wrong(rows: pa.Table) -> pa.Table:
    wrong = pc.if_else(pc.equal(rows["id"], 7), "wrong", rows["v"])
    return rows.set_column(rows.column_names.index("v"), "v", wrong.cast(rows["v"].type))


@pytest.mark.parametrize("damaged", [False, True])
def test_cycles_go_on_while_a_proof_compares(
    database: Database, tmp_path: Path, no_spark: SparkOnDemand, *, damaged: bool
) -> None:
    """A later cut changes every row, and maintenance is refused; equal is equal, and a wrong row is named by its key."""
    database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, v text)",
        "CREATE PUBLICATION pub FOR TABLE items",
        "INSERT INTO items SELECT i, 'a' FROM generate_series(1, 50) i",
    )
    source = database.source(buckets=16, retention=RetentionConfig(cuts_s=0))
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})
    bootstrap(config, "shop")
    into_the_lake(config, no_spark)
    if damaged:
        current = Path(config.lake) / LakePaths("shop").current(ITEMS)
        alter(data_files(current)[0], _one_wrong)
    seen = list[int]()

    def beside(event: Event) -> None:
        if event.kind != "prove.progress" or seen:
            return
        seen.append(0)
        database.execute("UPDATE items SET v = v || 'b'", "DELETE FROM items WHERE id = 3")
        into_the_lake(config, no_spark)
        cut = newest_cut(SourceLake.open(config.lake, "shop"))
        assert cut is not None
        seen.append(int(cut.position))
        with pytest.raises(TransientError, match="another process proves or maintains it"):
            maintain(config, "shop", no_spark, silent)

    proof = prove(config, "shop", None, no_spark, RunControl(beside), TABLES_ALONE)
    table = proof.tables[ITEMS]
    assert proof.position is not None
    assert seen[1] > int(proof.position)
    assert (table.status, table.source_rows) == ("differs" if damaged else "equal", 50), table.reason
    assert len(table.differing_keys) == (1 if damaged else 0)
    maintain(config, "shop", no_spark, silent)
    if not damaged:
        assert prove(config, "shop", None, no_spark, request=TABLES_ALONE).equal
