"""A repair reads the rows of the differing keys again, and no other, whatever the source writes meanwhile.

The damage is made in current's own files. What a proof finds belongs to `test_proof_whole.py` and
`test_proof_corruptions.py`, a copy that is killed to `tests/scenarios/test_repair_killed.py`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.events import Event, RunControl
from lakeproof.names import TableName
from lakeproof.proof.result import TableProof
from lakeproof.storage.source_lake import SourceLake
from tests.fix_lake import into_the_lake
from tests.fix_postgres import Database
from tests.repair_steps import REPAIR, Keyed, check_rows, damaged_lake, make_config, rows_under, write_beside

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)


TABLES = (
    Keyed("ints", "id int", "id", "i"),
    Keyed("texts", "id text", "id", """'k''"\\é' || i"""),
    Keyed("uuids", "id uuid", "id", "md5(i::text)::uuid"),
    Keyed("pairs", "a varchar(20), b bigint", "a, b", "'p' || i % 7, i::bigint"),
    Keyed(
        "stamps",
        "id timestamp",
        "id",
        "CASE i WHEN 7 THEN 'infinity' ELSE timestamp '2024-01-01' + i * interval '1.5 s' END",
    ),
    Keyed("numbers", "id numeric(20,6)", "id", "i / 8.0"),
    Keyed("bare", "id numeric, at timestamptz", "id, at", "i * 1.50, '2024-01-01 00:00:00+00'::timestamptz"),
    Keyed("filtered", "id int, day date", "id, day", "i, date '2024-01-01' + i", row_filter="id % 5 <> 1"),
    Keyed("parts", "id int", "id", "i", extra="PARTITION BY RANGE (id)"),
)


SOME, OTHERS = (TABLES[0], TABLES[3], TABLES[8]), (*TABLES[1:3], *TABLES[4:8])


def repaired(
    config: Config, spark: SparkSession, on_event: Callable[[Event], None] = lambda _event: None
) -> dict[TableName, TableProof]:
    """Prove and repair all tables."""
    return dict(prove(config, "shop", None, spark, RunControl(on_event), REPAIR).tables)


@pytest.mark.parametrize("chosen", [SOME, pytest.param(OTHERS, marks=pytest.mark.full)], ids=["some", "others"])
def test_the_differing_keys_alone_are_read_again(
    database: Database, tmp_path: Path, spark: SparkSession, chosen: Sequence[Keyed]
) -> None:
    """Every kind of damage and of key, while the same keys are written."""
    rng = random.Random(SEED)
    config = make_config(database, tmp_path, chosen)
    into_the_lake(config, spark)
    damages = damaged_lake(rng, database, config, spark, chosen)
    expected = dict[TableName, int]()

    def beside(event: Event) -> None:
        if event.kind == "prove.repair":
            for keyed in chosen:
                write_beside(rng, database, keyed, damages[keyed.table])
                expected[keyed.table] = rows_under(database, keyed, damages[keyed.table].numbers)
        elif event.kind == "prove.keys":
            keyed = next(each for each in chosen if each.table.key == event.fields["table"])
            write_beside(rng, database, keyed, damages[keyed.table])

    proofs = repaired(config, spark, beside)
    for keyed in chosen:
        proof, keys = proofs[keyed.table], len(damages[keyed.table].numbers)
        assert proof.repair is not None
        assert (proof.repair.how, proof.repair.reason) == ("keys", None), keyed.name
        assert (proof.repair.keys, proof.repair.rows_read) == (keys, expected[keyed.table]), keyed.name
        assert proof.status == "equal", (keyed.name, proof.reason)
    lake = SourceLake.open(config.location, "shop")
    assert lake.store.list(lake.paths.keyed_copies) == []
    check_rows(database, config, spark, chosen)
