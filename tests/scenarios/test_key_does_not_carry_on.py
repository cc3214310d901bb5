"""A table gets a key that has nothing to do with the one before: its snapshot brings it back, and no old row stays.

Seen once: the rows of before had NULL in the new key, a deletion by `=` met none of them, and a repair neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from psycopg.sql import SQL, Identifier
from pyspark.sql import SparkSession
from typing_extensions import LiteralString

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from tests.support.lake.lake_cuts import cut_of
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE, into_the_lake

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

_KEYED: tuple[LiteralString, ...] = (
    "CREATE TABLE {t} (id int PRIMARY KEY, v int)",
    "INSERT INTO {t} SELECT i, i FROM generate_series(1, 6) i",
)
_BAG: tuple[LiteralString, ...] = (
    "CREATE TABLE {t} (v int, w text)",
    "ALTER TABLE {t} REPLICA IDENTITY FULL",
    "INSERT INTO {t} SELECT i, 'w' FROM generate_series(1, 6) i",
)
_PAIR: tuple[LiteralString, ...] = (
    "CREATE TABLE {t} (a int, b int, v int, PRIMARY KEY (a, b))",
    "INSERT INTO {t} SELECT i, i, i FROM generate_series(1, 6) i",
)
# How each table begins, and what happens to it.
CASES: Mapping[str, tuple[tuple[LiteralString, ...], tuple[LiteralString, ...]]] = {
    "retyped": (_KEYED, ("ALTER TABLE {t} ALTER id TYPE text", "UPDATE {t} SET v = 9 WHERE id = '1'")),
    "to_numeric": (_KEYED, ("ALTER TABLE {t} ALTER id TYPE numeric(8, 2)", "UPDATE {t} SET v = 9 WHERE id = 1")),
    "one_of_two": (_PAIR, ("ALTER TABLE {t} ALTER b TYPE text", "UPDATE {t} SET v = 9 WHERE a = 1")),
    "surrogate": (
        _KEYED,
        (
            "ALTER TABLE {t} DROP CONSTRAINT {pkey}",
            "ALTER TABLE {t} ADD k bigserial PRIMARY KEY",
            "UPDATE {t} SET v = 9 WHERE id = 1",
        ),
    ),
    "from_a_bag": (
        _BAG,
        (
            "ALTER TABLE {t} ADD k bigserial PRIMARY KEY",
            "ALTER TABLE {t} REPLICA IDENTITY DEFAULT",
            "UPDATE {t} SET w = 'z' WHERE v = 1",
        ),
    ),
    "made_again": (
        _KEYED,
        (
            "DROP TABLE {t}",
            "CREATE TABLE {t} (k text PRIMARY KEY, id int)",
            "INSERT INTO {t} VALUES ('x', 1)",
            "ALTER PUBLICATION pub ADD TABLE {t}",
            "INSERT INTO {t} VALUES ('y', 2)",
        ),
    ),
}


SOME = ("retyped", "from_a_bag")


def _run(database: Database, name: str, statements: tuple[LiteralString, ...]) -> None:
    for text in statements:
        database.execute(SQL(text).format(t=Identifier(name), pkey=Identifier(f"{name}_pkey")))


@pytest.mark.parametrize("names", [SOME, pytest.param(tuple(CASES), marks=pytest.mark.full)], ids=["some", "all"])
def test_a_key_that_does_not_carry_on_leaves_no_old_row(
    database: Database, tmp_path: Path, spark: SparkSession, names: tuple[str, ...]
) -> None:
    """All cases in one lake; a further cycle of changes meets the rows by their new keys."""
    cases = {name: CASES[name] for name in names}
    for name, (make, _) in cases.items():
        _run(database, name, make)
    listed = SQL(", ").join(map(Identifier, cases))
    database.execute(SQL("CREATE PUBLICATION pub FOR TABLE {}").format(listed))
    source = database.source(buckets=16)
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})
    bootstrap(config, "shop")
    into_the_lake(config, spark)
    for name, (_, alter) in cases.items():
        _run(database, name, alter)
    into_the_lake(config, spark)
    held = sorted(cut_of(config).held)
    assert held, "each case that is not followed in place is held"
    bootstrap(config, "shop", held)
    into_the_lake(config, spark)
    assert not cut_of(config).held
    for name in cases:
        database.execute(SQL("DELETE FROM {t} WHERE ctid = (SELECT min(ctid) FROM {t})").format(t=Identifier(name)))
    actual = prove(config, "shop", None, spark, request=TABLES_ALONE).tables
    assert {t.name: (proof.status, proof.reason) for t, proof in actual.items()} == dict.fromkeys(
        cases, ("equal", None)
    )
