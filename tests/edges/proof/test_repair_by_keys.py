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

from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.events import Event, RunControl
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import TableName
from lakeproof.proof.result import TableProof
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.repair_steps import (
    REPAIR,
    Keyed,
    check_rows,
    damaged_lake,
    make_config,
    rows_under,
    run,
    write_beside,
)
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE, into_the_lake

pytestmark = [pytest.mark.postgres]

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


INTS = TABLES[0]
RATIOS = Keyed("ratios", "id float8", "id", "i / 7.0")
SOME, OTHERS = (TABLES[0], TABLES[3], TABLES[8]), (*TABLES[1:3], *TABLES[4:8])


def repaired(
    config: Config, no_spark: SparkOnDemand, on_event: Callable[[Event], None] = lambda _event: None
) -> dict[TableName, TableProof]:
    """Prove and repair all tables."""
    return dict(prove(config, "shop", None, no_spark, RunControl(on_event), REPAIR).tables)


@pytest.mark.parametrize("chosen", [SOME, pytest.param(OTHERS, marks=pytest.mark.full)], ids=["some", "others"])
def test_the_differing_keys_alone_are_read_again(
    database: Database, tmp_path: Path, no_spark: SparkOnDemand, chosen: Sequence[Keyed]
) -> None:
    """Every kind of damage and of key, while the same keys are written, of all tables but one."""
    rng = random.Random(SEED)
    config = make_config(database, tmp_path, chosen)
    into_the_lake(config, no_spark)
    damages = damaged_lake(rng, database, config, no_spark, chosen)
    expected = dict[TableName, int]()

    def beside(event: Event) -> None:
        if event.kind == "prove.repair":
            for keyed in chosen:
                if keyed is not chosen[-1]:
                    write_beside(rng, database, keyed, damages[keyed.table])
                expected[keyed.table] = rows_under(database, keyed, damages[keyed.table].numbers)
        elif event.kind == "prove.keys":
            keyed = next(each for each in chosen if each.table.key == event.fields["table"])
            if keyed is not chosen[-1]:
                write_beside(rng, database, keyed, damages[keyed.table])

    proofs = repaired(config, no_spark, beside)
    for keyed in chosen:
        proof, keys = proofs[keyed.table], len(damages[keyed.table].numbers)
        assert proof.repair is not None
        assert (proof.repair.how, proof.repair.reason) == ("keys", None), keyed.name
        assert (proof.repair.keys, proof.repair.rows_read) == (keys, expected[keyed.table]), keyed.name
        assert proof.status == "equal", (keyed.name, proof.reason)
    lake = SourceLake.open(config.location, "shop")
    assert lake.store.list(lake.paths.keyed_copies) == []
    check_rows(database, config, no_spark, chosen)


def test_a_table_without_a_fit_key_is_copied_whole_and_the_reason_is_given(
    database: Database, tmp_path: Path, no_spark: SparkOnDemand
) -> None:
    """A copy heals the same damage; a row that stays beside its double is in history behind the delete."""
    rng = random.Random(SEED)
    config = make_config(database, tmp_path, [RATIOS])
    into_the_lake(config, no_spark)
    damages = damaged_lake(rng, database, config, no_spark, [RATIOS])
    proof = repaired(config, no_spark)[RATIOS.table]
    assert damages[RATIOS.table].twice
    assert proof.status == "equal", proof.reason
    assert proof.repair is not None
    assert (proof.repair.how, proof.repair.rows_read) == ("whole", proof.source_rows)
    assert proof.repair.reason == "its key's column id is of type float8, which may compare in its own way"
    check_rows(database, config, no_spark, [RATIOS])


def test_a_key_that_was_moved_meanwhile_ends_equal_too(
    database: Database, tmp_path: Path, no_spark: SparkOnDemand
) -> None:
    """The row under the new key has a wrong large value from the lake; it is copied whole then."""
    rng = random.Random(SEED)
    config = make_config(database, tmp_path, [INTS])
    into_the_lake(config, no_spark)
    damaged = damaged_lake(rng, database, config, no_spark, [INTS])[INTS.table]
    moved = [n for n in damaged.lost if n % 3 == 0][:1] or damaged.lost[:1]

    def beside(event: Event) -> None:
        if event.kind == "prove.repair" and "keys" in event.fields:
            run(database, f"UPDATE ints SET id = id + 5000 WHERE {INTS.where(moved)}")  # noqa: S608  made here

    proof = repaired(config, no_spark, beside)[INTS.table]
    assert proof.status == "equal", f"{proof.reason}, seed {SEED}"
    # Its history still has the row under the old key: the copy of a held table says nothing of a row that was lost.
    into_the_lake(config, no_spark)
    assert prove(config, "shop", None, no_spark, request=TABLES_ALONE).equal
