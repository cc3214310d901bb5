"""A repair is ended at every step between its reading of keys and the cut that has them; the next one ends equal.

The crash is an exception that nobody may catch: what is on disk is what a killed process leaves.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.failpoints import watched
from lakeproof.lake.records.store import newest_cut, newest_number
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.snapshot.copy.keyed_copy import remove_copies
from lakeproof.storage.source_lake import SourceLake
from tests.support.faults.crashes import Crash
from tests.support.faults.damage import alter
from tests.support.lake.repair_steps import REPAIR, Keyed, check_rows, largest_file, make_config, run
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE, into_the_lake

pytestmark = [pytest.mark.postgres]

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
INTS = Keyed("ints", "id int", "id", "i")
# Nothing names the copy before the intent does.
BEFORE = ("repair.after_rows", "repair.after_copy")
INSIDE = ("cycle.after_intent", "cycle.after_history", "cycle.after_current", "cycle.after_tables", "cycle.after_sync")
SOME = ("repair.after_copy", "cycle.after_history")


def _damage(config: Config, number: int) -> None:
    """Change one row in current's file."""

    def change(rows: pa.Table) -> pa.Table:
        for name, value in (("v", "wrong"), ("pad", "")):
            altered = pc.if_else(pc.equal(rows["n"], number), value, rows[name]).cast(rows[name].type)
            rows = rows.set_column(rows.column_names.index(name), name, altered)
        return rows

    alter(largest_file(config, INTS), change)


@pytest.mark.parametrize(
    "steps", [SOME, pytest.param((*BEFORE, *INSIDE, "cycle.after_cut"), marks=pytest.mark.full)], ids=["some", "all"]
)
def test_a_repair_that_is_killed_harms_nothing_and_the_next_one_ends_it(
    database: Database, tmp_path: Path, no_spark: SparkOnDemand, steps: tuple[str, ...]
) -> None:
    """Before its intent nothing has changed; from there on whoever comes next finishes the cycle."""
    config = make_config(database, tmp_path, [INTS])
    into_the_lake(config, no_spark)
    lake = SourceLake.open(config.location, "shop")
    numbers = iter(random.Random(SEED).sample(range(1, 200), len(steps)))
    for step in steps:
        number = next(numbers)
        _damage(config, number)
        cut = newest_cut(lake)
        assert cut is not None

        def crash(name: str, *, end: str = step) -> None:
            # The first cycle of a repair is that of its proof, which writes nothing here.
            if name == end and (name.startswith("repair") or lake.store.list(lake.paths.keyed_copies)):
                raise Crash

        with watched(crash), pytest.raises(Crash):
            prove(config, "shop", None, no_spark, request=REPAIR)
        assert lake.store.list(lake.paths.keyed_copies), f"{step}, seed {SEED}"
        # A change of the damaged row itself would put it right.
        changed = [250] if step in BEFORE else [number, 250]
        run(database, f"UPDATE ints SET v = v || ' later' WHERE {INTS.where(changed)}")  # noqa: S608  made here
        into_the_lake(config, no_spark)
        status = prove(config, "shop", None, no_spark, request=TABLES_ALONE).tables[INTS.table].status
        assert status == ("differs" if step in BEFORE else "equal"), f"{step}, seed {SEED}"
        ended = prove(config, "shop", None, no_spark, request=REPAIR).tables[INTS.table]
        assert ended.status == "equal", f"{step}, seed {SEED}: {ended.reason}"
        assert (ended.repair is not None) is (step in BEFORE)
        if step in BEFORE:
            assert lake.store.list(lake.paths.keyed_copies) == [], "the next repair has removed it"
        # As maintenance does.
        remove_copies(lake)
        newest = newest_cut(lake)
        assert newest is not None
        assert newest_number(lake.store, lake.paths.intents) == newest.number
    check_rows(database, config, no_spark, [INTS])
