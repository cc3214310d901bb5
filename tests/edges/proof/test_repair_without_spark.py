"""A repair without Spark: the rows of the differing keys, or a whole copy, are compared in this process."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from lakeproof.commands.prove import prove
from lakeproof.events import Event, RunControl
from lakeproof.lake.spark_on_demand import SparkOnDemand
from tests.support.lake.repair_steps import REPAIR, Keyed, check_rows, damaged_lake, make_config, run
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import into_the_lake
from tests.support.workloads.lake_workload import SEED

pytestmark = [pytest.mark.postgres]

TABLES = (
    Keyed("texts", "id text", "id", """'k''"\\é' || i"""),
    Keyed("pairs", "a varchar(20), b bigint", "a, b", "'p' || i % 7, i::bigint"),
    Keyed("numbers", "id numeric", "id", "i * 1.50"),
    Keyed("filtered", "id int, day date", "id, day", "i, date '2024-01-01' + i", row_filter="id % 5 <> 1"),
    Keyed("parts", "id int", "id", "i", extra="PARTITION BY RANGE (id)"),
    Keyed("ratios", "id float8", "id", "i / 7.0"),
)


def test_what_differs_is_put_right_without_a_jvm(database: Database, tmp_path: Path, no_spark: SparkOnDemand) -> None:
    """Rows that are lost, wrong, of nobody and twice, while others are written but of one table; one is copied whole."""
    rng = random.Random(SEED)
    config = make_config(database, tmp_path, TABLES)
    into_the_lake(config, no_spark)
    damages = damaged_lake(rng, database, config, no_spark, TABLES)
    others = {k: [n for n in range(1, 60) if n not in damages[k.table].numbers] for k in TABLES}

    def beside(event: Event) -> None:
        for keyed in TABLES[1:] if event.kind == "prove.repair" else ():
            updated, deleted = others[keyed][:9], others[keyed][9:12]
            run(
                database,
                f"UPDATE {keyed.name} SET v = v || ' beside' WHERE {keyed.where(updated)}",  # noqa: S608  ours
                f"DELETE FROM {keyed.name} WHERE {keyed.where(deleted)}",  # noqa: S608  ours
            )

    proofs = prove(config, "shop", None, no_spark, RunControl(beside), REPAIR).tables
    for keyed in TABLES:
        proof = proofs[keyed.table]
        assert proof.status == "equal", f"{keyed.name}: {proof.reason}, seed {SEED}"
        assert proof.repair is not None
        assert proof.repair.how == ("whole" if keyed.name == "ratios" else "keys"), f"{proof.repair}, seed {SEED}"
    check_rows(database, config, no_spark, TABLES)
