"""Changes that PostgreSQL does not send, all the way: the table is held, others go on, a new snapshot makes it equal.

Which difference calls for what is held to its table in `test_catalog_drift.py` and `test_catalog_differences.py`; one
difference goes all the way in `make test` too (`test_proof_whole.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from psycopg.sql import SQL, Identifier
from pyspark.sql import SparkSession
from typing_extensions import LiteralString

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.names import TableName
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow, pytest.mark.full]


@dataclass(frozen=True)
class Case:
    """A table (id, v) unless `make` makes it otherwise; `alter` is what is done to it.

    `reason` is in the reason why it is held then. `undo`, where there is one, comes before the new snapshot, `after`
    once it has entered; `ends` is what the proof says then.
    """

    reason: str
    alter: tuple[LiteralString, ...]
    undo: tuple[LiteralString, ...] = ()
    ends: str = "equal"
    after: tuple[LiteralString, ...] = ()
    make: tuple[LiteralString, ...] = ()


_ROOT: tuple[LiteralString, ...] = (
    "CREATE TABLE {t} (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)",
    "CREATE TABLE {a} PARTITION OF {t} FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE {b} PARTITION OF {t} FOR VALUES FROM (10) TO (30)",
    "INSERT INTO {t} SELECT i, i FROM generate_series(1, 20) i",
)
_OUT_AND_IN: tuple[LiteralString, ...] = ("ALTER PUBLICATION pub DROP TABLE {t}", "ALTER PUBLICATION pub ADD TABLE {t}")
CASES = {
    "kept": Case("", ("INSERT INTO {t} VALUES (100, 1)",)),
    "rewritten": Case("rewritten by an ALTER TABLE", ("ALTER TABLE {t} ALTER v TYPE int USING v + 1",)),
    "filtered": Case(
        "row filter",
        ("ALTER PUBLICATION pub DROP TABLE {t}", "ALTER PUBLICATION pub ADD TABLE {t} WHERE (id > 5)"),
    ),
    "truncated": Case("partition was truncated", ("TRUNCATE {a}",), make=_ROOT),
    "detached": Case("partition was detached", ("ALTER TABLE {t} DETACH PARTITION {a}",), make=_ROOT),
    "attached": Case(
        "partition was attached",
        (
            "CREATE TABLE {c} (id int PRIMARY KEY, v int)",
            "INSERT INTO {c} VALUES (35, 1)",
            "ALTER TABLE {t} ATTACH PARTITION {c} FOR VALUES FROM (30) TO (40)",
        ),
        make=_ROOT,
    ),
    "part": Case(
        "its rows go, as a partition's, to public.attached",
        ("ALTER TABLE attached ATTACH PARTITION {t} FOR VALUES FROM (1000) TO (2000)", "UPDATE {t} SET v = 0"),
        ends="held",
        make=(
            "CREATE TABLE {t} (id int PRIMARY KEY, v int)",
            "INSERT INTO {t} SELECT i, i FROM generate_series(1001, 1020) i",
        ),
    ),
    "labelled": Case(
        "enum's label was renamed",
        ("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",),
        make=("CREATE TABLE {t} (id int PRIMARY KEY, v mood)", "INSERT INTO {t} VALUES (1, 'sad'), (2, 'glad')"),
    ),
    "composed": Case(
        "composite type was altered",
        ("ALTER TYPE pair ADD ATTRIBUTE c int",),
        make=("CREATE TABLE {t} (id int PRIMARY KEY, v pair)", "INSERT INTO {t} VALUES (1, '(1,x)'), (2, NULL)"),
    ),
    "published_again": Case("taken out of the publication and put back", _OUT_AND_IN),
    "more_operations": Case(
        "sends other operations",
        (
            "ALTER PUBLICATION pub_inserts SET (publish = 'insert, update, delete, truncate')",
            "UPDATE {t} SET v = 0 WHERE id = 7",
        ),
    ),
    "retyped": Case(
        "a column has another type",
        ("ALTER TABLE {t} ALTER v TYPE text", "INSERT INTO {t} VALUES (200, '1')"),
        after=("INSERT INTO {t} VALUES (38, '1')", "UPDATE {t} SET v = 'x' WHERE id > 7"),
    ),
    "narrowed": Case(
        "column list",
        ("ALTER PUBLICATION pub DROP TABLE {t}", "ALTER PUBLICATION pub ADD TABLE {t} (id)"),
        after=("INSERT INTO {t} VALUES (38, 1)", "DELETE FROM {t} WHERE id = 8"),
    ),
    "table_made_again": Case(
        "the table was recreated",
        (
            "DROP TABLE {t}",
            "CREATE TABLE {t} (v text, id int PRIMARY KEY, w int)",
            "ALTER PUBLICATION pub ADD TABLE {t}",
            "INSERT INTO {t} VALUES ('a', 3, 4), (NULL, 4, 5)",
        ),
        after=("UPDATE {t} SET v = 'b' WHERE id = 4",),
    ),
    "left": Case(
        "not published any more",
        ("ALTER PUBLICATION pub DROP TABLE {t}", "INSERT INTO {t} VALUES (100, 1)"),
        ("ALTER PUBLICATION pub ADD TABLE {t}",),
    ),
    "dropped": Case("dropped", ("DROP TABLE {t}",), ends="not applicable"),
    "renamed": Case("renamed", ("ALTER TABLE {t} RENAME TO {a}", "UPDATE {a} SET v = 0"), ends="held"),
}  # fmt: skip
_PLAIN: tuple[LiteralString, ...] = (
    "CREATE TABLE {t} (id int PRIMARY KEY, v int)",
    "INSERT INTO {t} SELECT i, i FROM generate_series(1, 20) i",
)
_GONE = ("dropped", "renamed", "part")


def run(database: Database, name: str, statements: tuple[LiteralString, ...]) -> None:
    """The statements about a table: {t} is its name, the others those of its partitions."""
    names = {"t": name, **{letter: f"{name}_{letter}" for letter in "abc"}}
    for text in statements:
        database.execute(SQL(text).format(**{key: Identifier(n) for key, n in names.items()}))


@pytest.fixture
def config(database: Database, tmp_path: Path) -> Config:
    """A table for each case, copied."""
    database.execute("CREATE TYPE mood AS ENUM ('sad', 'glad')", "CREATE TYPE pair AS (a int, b text)")
    for name, case in CASES.items():
        run(database, name, case.make or _PLAIN)
    sent = SQL(", ").join(Identifier(name) for name in CASES if name != "more_operations")
    database.execute(
        SQL("CREATE PUBLICATION pub FOR TABLE {} WITH (publish_via_partition_root)").format(sent),
        "CREATE PUBLICATION pub_inserts FOR TABLE more_operations WITH (publish = 'insert')",
    )
    source = database.source(buckets=16)
    result = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})
    bootstrap(result, "shop")
    return result


def proven(config: Config, spark: SparkSession) -> dict[str, tuple[str, str]]:
    """Each table's status and reason."""
    actual = prove(config, "shop", None, spark, request=TABLES_ALONE).tables
    return {table.name: (proof.status, proof.reason or "") for table, proof in actual.items()}


def test_what_is_not_sent_is_held_and_mended_by_a_snapshot(
    database: Database, config: Config, spark: SparkSession
) -> None:
    """All cases at once: exactly the altered tables are held, each with its reason; and then what a snapshot mends."""
    assert set(proven(config, spark).values()) == {("equal", "")}
    for name, case in CASES.items():
        run(database, name, case.alter)
    actual = proven(config, spark)
    expected = dict.fromkeys(CASES, "held") | {name: CASES[name].ends for name in ("kept", "dropped")}
    assert {name: actual[name][0] for name in CASES} == expected, actual
    for name, case in CASES.items():
        assert case.reason in actual[name][1]
    assert "public.attached: run `lakeproof bootstrap shop --tables public.attached`, then compact" in actual["part"][1]
    for name, case in CASES.items():
        run(database, name, case.undo)
    bootstrap(config, "shop", [TableName("public", name) for name in CASES if name not in (*_GONE, "kept")])
    actual = proven(config, spark)
    assert {name: actual[name][0] for name in CASES} == {name: case.ends for name, case in CASES.items()}, actual
    changes: tuple[LiteralString, ...] = (
        "INSERT INTO {t} VALUES (38, 1)", "UPDATE {t} SET v = -1 WHERE id > 7", "DELETE FROM {t} WHERE id = 8",
    )  # fmt: skip
    for name in ("rewritten", "filtered", "attached", "left", "more_operations"):
        run(database, name, changes)
    for name, case in CASES.items():
        run(database, name, case.after)
    actual = proven(config, spark)
    assert {name: actual[name][0] for name in CASES} == {name: case.ends for name, case in CASES.items()}, actual
