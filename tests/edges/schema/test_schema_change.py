"""Changes of schema, all the way: what docs/schema-changes.md says of each is what a lake under a real PostgreSQL does.

What leaves no trace in the stream is in `test_catalog_to_lake.py`; many changes at random in `tests/properties`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from psycopg.sql import SQL, Identifier
from pyspark.sql import SparkSession
from typing_extensions import LiteralString

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.lake.planning import schema_changes as schema_plan
from lakeproof.lake.read.spark.open import open_lake
from lakeproof.lake.records.documents import Cut
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.lake_cuts import cut_of
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

_KEYED: tuple[LiteralString, ...] = (
    "CREATE TABLE {t} (id int PRIMARY KEY, v int, w text)",
    "INSERT INTO {t} SELECT i, i, 'w' || i FROM generate_series(1, 20) i",
)
_BAG: tuple[LiteralString, ...] = (
    "CREATE TABLE {t} (v int, w text)",
    "ALTER TABLE {t} REPLICA IDENTITY FULL",
    "INSERT INTO {t} SELECT i % 5, 'w' FROM generate_series(1, 20) i",
)
_OLDER_OF_BAG: LiteralString = "UPDATE {t} SET w = 'y' WHERE v = 3"
_NAMES: LiteralString = """SELECT attname FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
IN_PLACE, HELD = "in place", "held"
PAGE = Path(__file__).parents[3] / "docs" / "schema-changes.md"


@dataclass(frozen=True)
class Case:
    """`alter` each in its own transaction, then a row in the new schema; `files`: whether data files stay untouched.

    `older` is a row in the old schema, still unread by then. `changed`: the lake's schema changes, and says so.
    """

    alter: tuple[LiteralString, ...]
    ends: str = IN_PLACE
    make: tuple[LiteralString, ...] = _KEYED
    files: bool = True
    changed: bool = True
    touch: LiteralString = "UPDATE {t} SET v = 7 WHERE id = 7"
    older: LiteralString = "UPDATE {t} SET v = 66 WHERE id = 6"


CASES: Mapping[str, Case] = {
    "added": Case(("ALTER TABLE {t} ADD x int",)),
    "added_with_a_constant": Case(("ALTER TABLE {t} ADD x text DEFAULT 'a \"b\\, {{}}'",), files=False),
    "added_as_null": Case(("ALTER TABLE {t} ADD x timestamp DEFAULT NULL",)),
    "added_rewriting": Case(("ALTER TABLE {t} ADD x float8 DEFAULT random()",), HELD),
    "added_far": Case(("ALTER TABLE {t} ADD x date DEFAULT 'infinity'",), HELD),
    "added_to_partitions": Case(
        ("ALTER TABLE {t} ADD x int DEFAULT 4",),
        make=(
            "CREATE TABLE {t} (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)",
            "CREATE TABLE {a} PARTITION OF {t} FOR VALUES FROM (0) TO (100)",
            "INSERT INTO {t} SELECT i, i FROM generate_series(1, 20) i",
        ),
        files=False,
    ),
    "dropped": Case(("ALTER TABLE {t} DROP w",)),
    "renamed": Case(('ALTER TABLE {t} RENAME w TO "W é"',)),
    "swapped": Case(("ALTER TABLE {t} RENAME v TO x", "ALTER TABLE {t} RENAME w TO v", "ALTER TABLE {t} RENAME x TO w"),
                    touch="UPDATE {t} SET w = 7 WHERE id = 7"),
    "made_again_alike": Case(("ALTER TABLE {t} DROP w", "ALTER TABLE {t} ADD w text"), HELD),
    "made_again": Case(("ALTER TABLE {t} DROP w", "ALTER TABLE {t} ADD w int")),
    "made_again_with_a_constant": Case(("ALTER TABLE {t} DROP w, ADD w int DEFAULT 3",), files=False),
    "widened": Case(("ALTER TABLE {t} ALTER v TYPE bigint",)),
    "widened_key": Case(("ALTER TABLE {t} ALTER id TYPE bigint",)),
    "lengthened": Case(
        ("ALTER TABLE {t} ALTER w TYPE varchar(80), ALTER n TYPE numeric(12,2)",),
        make=(
            "CREATE TABLE {t} (id int PRIMARY KEY, v int, w varchar(40), n numeric(8,2))",
            "INSERT INTO {t} SELECT i, i, 'w', i / 3.0 FROM generate_series(1, 20) i",
        ),
    ),
    "of_a_domain": Case(
        ("ALTER TABLE {t} ALTER v TYPE int, ALTER w TYPE {a}",),
        make=(
            "CREATE DOMAIN {a} AS varchar(40)",
            "CREATE DOMAIN of_int AS int CHECK (VALUE > 0)",
            "CREATE TABLE {t} (id int PRIMARY KEY, v of_int, w varchar(40))",
            "INSERT INTO {t} SELECT i, i, 'w' || i FROM generate_series(1, 20) i",
        ),
    ),
    "not_null": Case(("ALTER TABLE {t} ALTER w SET NOT NULL",), changed=False),
    "identity_full": Case(("ALTER TABLE {t} REPLICA IDENTITY FULL",), files=False),
    "key_moved": Case(
        ("ALTER TABLE {t} DROP CONSTRAINT {pkey}", "ALTER TABLE {t} ADD PRIMARY KEY (v)"),
        touch="UPDATE {t} SET w = 'x' WHERE v = 7",
    ),
    "key_moved_after_rows": Case(
        (
            "UPDATE {t} SET w = 'y' WHERE id = 3",
            "ALTER TABLE {t} DROP CONSTRAINT {pkey}",
            "ALTER TABLE {t} ADD PRIMARY KEY (v)",
        ),
        touch="UPDATE {t} SET w = 'x' WHERE v = 7",
    ),
    "within_a_transaction": Case(
        (
            """BEGIN; UPDATE {t} SET v = 1 WHERE id = 1; ALTER TABLE {t} ADD x int DEFAULT 5;
            UPDATE {t} SET x = 6 WHERE id = 2; INSERT INTO {t} VALUES (90, 90, 'y', 7);
            ALTER TABLE {t} ADD y bigint; DELETE FROM {t} WHERE id = 3; UPDATE {t} SET y = id WHERE id < 5; COMMIT""",
        ),
        files=False,
    ),
    "renamed_within_a_transaction": Case(
        ("BEGIN; UPDATE {t} SET v = 1 WHERE id = 1; ALTER TABLE {t} RENAME w TO y; DELETE FROM {t} WHERE id = 3; COMMIT",),
    ),
    "key_within_a_transaction": Case(
        (
            """BEGIN; UPDATE {t} SET w = 'x' WHERE id = 1; ALTER TABLE {t} DROP CONSTRAINT {pkey};
            ALTER TABLE {t} ADD PRIMARY KEY (v); UPDATE {t} SET w = 'z' WHERE v = 2; COMMIT""",
        ),
        HELD,
        touch="UPDATE {t} SET w = 'x' WHERE v = 7",
    ),
    "retyped": Case(("ALTER TABLE {t} ALTER v TYPE text",), HELD, touch="UPDATE {t} SET v = '7' WHERE id = 7"),
    "bag_added": Case(("ALTER TABLE {t} ADD x int",), make=_BAG, files=False, touch="UPDATE {t} SET w = 'x' WHERE v = 2",
                      older=_OLDER_OF_BAG),
    "bag_renamed": Case(("ALTER TABLE {t} RENAME w TO x",), make=_BAG, touch="UPDATE {t} SET x = 'x' WHERE v = 2",
                        older=_OLDER_OF_BAG),
}  # fmt: skip

# A key that is rewritten, schemas amid a transaction with a column that is filled, and what is held.
SOME = ("widened_key", "within_a_transaction", "retyped")


def run(database: Database, name: str, *statements: LiteralString) -> None:
    """The statements about a table."""
    for text in statements:
        database.execute(
            SQL(text).format(t=Identifier(name), a=Identifier(f"{name}_a"), pkey=Identifier(f"{name}_pkey"))
        )


def files_of(config: Config, table: TableName, since: int, until: int) -> list[str]:
    """Return what current's commits after one version did to files, except to give rows a deletion vector."""
    lake = SourceLake.open(config.lake, "shop")
    log = Path(lake.url(lake.paths.current(table))) / "_delta_log"
    kinds = []
    for version in range(since + 1, until + 1):
        lines = (log / f"{version:020d}.json").read_text().splitlines()
        kinds.append("metadata" if any(line.startswith('{"metaData"') for line in lines) else "rows")
        actions = [json.loads(line) for line in lines]
        if kinds[-1] == "metadata":
            kinds += [kind for action in actions for kind in action if kind in {"add", "remove"}]
    return kinds


def begun(database: Database, folder: Path, cases: Mapping[str, Case]) -> Config:
    """A table for each case, copied."""
    for name, case in cases.items():
        run(database, name, *case.make)
    listed = SQL(", ").join(Identifier(name) for name in cases)
    database.execute(SQL("CREATE PUBLICATION pub FOR TABLE {} WITH (publish_via_partition_root)").format(listed))
    source = database.source(buckets=16)
    result = Config(path=folder / "w.yaml", lake=str(folder / "lake"), sources={"shop": source})
    bootstrap(result, "shop")
    return result


def proven(config: Config, spark: SparkSession) -> dict[str, tuple[str, str]]:
    """Each table's status and reason."""
    actual = prove(config, "shop", None, spark, request=TABLES_ALONE).tables
    return {table.name: (proof.status, proof.reason or "") for table, proof in actual.items()}


@pytest.mark.parametrize("names", [SOME, pytest.param(tuple(CASES), marks=pytest.mark.full)], ids=["some", "all"])
def test_each_change_of_schema_ends_equal(
    database: Database, tmp_path: Path, spark: SparkSession, names: tuple[str, ...]
) -> None:
    """The change is made in place, without a new data file if promised; or only that table is held until a snapshot."""
    cases = {name: CASES[name] for name in names}
    config = begun(database, tmp_path, cases)
    compact(config, "shop", spark, silent, Stop())
    before = cut_of(config)
    for name, case in cases.items():
        run(database, name, case.older, *case.alter)
    # One transaction brings all schemas: a cycle for them together.
    with database.connect(autocommit=False) as connection:
        for name, case in cases.items():
            connection.execute(SQL(case.touch).format(t=Identifier(name)))
    actual = proven(config, spark)
    ends = {name: HELD if status == "held" else IN_PLACE for name, (status, _) in actual.items()}
    assert ends == {name: case.ends for name, case in cases.items()}, actual
    assert {actual[n] for n, c in cases.items() if c.ends == IN_PLACE} == {("equal", "")}, actual
    after = cut_of(config)
    for name, case in cases.items():
        if case.ends == IN_PLACE:
            table = TableName("public", name)
            done = files_of(config, table, before.tables[table].current_version, after.tables[table].current_version)
            assert ({"add", "remove"} & set(done) == set()) == case.files, (name, done)
    assert_an_old_cut_has_its_columns(config, spark, before)
    bootstrap(config, "shop", [TableName("public", n) for n, c in cases.items() if c.ends == HELD])
    for name, case in cases.items():
        run(database, name, case.touch)
    actual = proven(config, spark)
    assert set(actual.values()) == {("equal", "")}, actual
    assert_reported(config, spark, cases, {held.reason for held in after.held.values()})


# What a table follows though no row of it has come, by what the drain reads of the catalog.
IDLE = ("added", "added_with_a_constant", "renamed", "dropped", "widened", "bag_added", "retyped")
SOME_IDLE = ("added_with_a_constant", "renamed", "retyped")


@pytest.mark.full
@pytest.mark.parametrize("names", [SOME_IDLE, pytest.param(IDLE, marks=pytest.mark.full)], ids=["some", "all"])
def test_a_table_without_changes_follows_its_catalog(
    database: Database, tmp_path: Path, spark: SparkSession, names: tuple[str, ...]
) -> None:
    """The next cycle has the new schema; what can't be made in place is held."""
    cases = {name: CASES[name] for name in names}
    config = begun(database, tmp_path, cases)
    compact(config, "shop", spark, silent, Stop())
    for name, case in cases.items():
        run(database, name, *case.alter)
    drain(config, "shop", Until.caught_up(), silent, Stop())
    # What was noticed may be a few bytes further on in the WAL than what there was to drain.
    database.execute("CREATE TABLE another ()")
    drain(config, "shop", Until.caught_up(), silent, Stop())
    compact(config, "shop", spark, silent, Stop())
    cut = cut_of(config)
    assert {table.name for table in cut.held} == {n for n, c in cases.items() if c.ends == HELD}
    actual = proven(config, spark)
    assert {n for n, (status, _) in actual.items() if status == "held"} == {"retyped"}
    assert {actual[n] for n, c in cases.items() if c.ends == IN_PLACE} == {("equal", "")}, actual
    for name in cases.keys() & {"added", "renamed", "dropped", "widened"}:
        columns = cut.tables[TableName("public", name)].version.columns
        there = database.rows(_NAMES, [name])
        assert [(c.name,) for c in columns] == there


@pytest.mark.full
def test_a_default_is_known_after_the_record_of_its_coming_is_gone(
    database: Database, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention has removed it before a row came: the newest reading has the default, but can't tell NULL from nothing."""
    names = ("added_with_a_constant", "added")
    cases = {name: CASES[name] for name in names}
    config = begun(database, tmp_path, cases)
    compact(config, "shop", spark, silent, Stop())
    for name, case in cases.items():
        run(database, name, *case.alter)
    # inside: retention removes them after days
    monkeypatch.setattr(schema_plan, "catalog_manifests", lambda _chain, _position: [])
    for name, case in cases.items():
        run(database, name, case.touch)
    actual = proven(config, spark)
    assert actual["added_with_a_constant"] == ("equal", "")
    assert actual["added"][0] == "held"
    assert "the catalog's records do not have x" in actual["added"][1]
    bootstrap(config, "shop", [TableName("public", "added")])
    assert set(proven(config, spark).values()) == {("equal", "")}


def assert_an_old_cut_has_its_columns(config: Config, spark: SparkSession, before: Cut) -> None:
    """A cut that was pinned before the changes reads as it did."""
    opened = open_lake(spark, config, int(before.number))
    for table, position in before.tables.items():
        frame = opened.table("shop", table)
        assert frame.columns == [c.name for c in position.version.columns]
        assert frame.count() >= 20


def assert_reported(config: Config, spark: SparkSession, cases: Mapping[str, Case], reasons: set[str]) -> None:
    """A row for each change, also for those that were not applied, with the reason, and a document for each schema."""
    lake = SourceLake.open(config.lake, "shop")
    rows = spark.read.format("delta").load(lake.url(lake.paths.schema_history)).collect()
    done = {(row["table"].removeprefix("public."), row["done"]) for row in rows}
    assert done >= {(name, case.ends) for name, case in cases.items() if case.changed}
    assert not {name for name, _ in done} & {name for name, case in cases.items() if not case.changed}
    assert {row["detail"] for row in rows if row["done"] == HELD} <= reasons
    newest = cut_of(config)
    for name in cases:
        table = TableName("public", name)
        keys = lake.store.list(f"{lake.source}/schemas/{table.key}")
        assert len(keys) == 1 + sum(row["table"] == f"public.{name}" and row["done"] != HELD for row in rows)
        assert json.loads(lake.store.get(keys[-1]))["schema_id"] == newest.tables[table].version.id


def test_the_page_has_these_changes() -> None:
    """docs/schema-changes.md, "What is done in place": each case with what the lake does, and no other."""
    form = r"^\| \*([a-z ]+)\* \| .* \| (in place|snapshot again) \| (untouched|rewritten|as above|) *\|$"
    actual = {
        name: (ends, files) for name, ends, files in re.findall(form, PAGE.read_text("utf-8"), flags=re.MULTILINE)
    }
    files = {name: "untouched" if case.files else "rewritten" for name, case in CASES.items()}
    message = {
        name.replace("_", " "): ("snapshot again", "") if case.ends == HELD else ("in place", files[name])
        for name, case in CASES.items()
    }
    message["within a transaction"] = ("in place", "as above")
    assert actual == message
