"""Publications of every kind, replica identities of every kind: what the lake has is what each of them sends.

What `check` refuses is in `test_source_refusals.py`; the random workload over the usual kinds in `tests/properties`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.sql import SQL, Identifier
from pyspark.sql import SparkSession
from typing_extensions import LiteralString

from demo.server import EmbeddedPostgres
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config, TableConfig
from lakeproof.lake.records.store import newest_cut
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.compare import lake_rows, source_rows, table_columns
from tests.support.servers.fix_postgres import Database, new_database
from tests.support.spark.spark_steps import TABLES_ALONE

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow, pytest.mark.since(15)]

# Each view `lake.<table>` is what the publication shows of its table.
_NAMED: tuple[LiteralString, ...] = (
    "CREATE TABLE by_key (id int PRIMARY KEY, n int, doc text)",
    "ALTER TABLE by_key ALTER doc SET STORAGE EXTERNAL",
    "CREATE TABLE by_index (id int, n int NOT NULL, v text)",
    "CREATE UNIQUE INDEX by_index_n ON by_index (n)",
    "ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_n",
    "CREATE TABLE full_bag (id int, n int, v text)",
    "ALTER TABLE full_bag REPLICA IDENTITY FULL",
    "CREATE TABLE full_keyed (id int, n int, v text)",
    "ALTER TABLE full_keyed REPLICA IDENTITY FULL",
    "CREATE TABLE filtered_key (id int PRIMARY KEY, n int, v text)",
    "CREATE TABLE filtered_index (id int, n int NOT NULL, v text)",
    "CREATE UNIQUE INDEX filtered_index_n ON filtered_index (n)",
    "ALTER TABLE filtered_index REPLICA IDENTITY USING INDEX filtered_index_n",
    "CREATE TABLE filtered_full (id int, n int, v text)",
    "ALTER TABLE filtered_full REPLICA IDENTITY FULL",
    "CREATE TABLE listed (v text, id int PRIMARY KEY, n int, unseen text DEFAULT 'u')",
    "CREATE TABLE made (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED, v text)",
    "CREATE TABLE parts (id int PRIMARY KEY, n int, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (20)",
    "CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (20) TO (1000000)",
    "CREATE TABLE log (id int, n int, v text)",
    "CREATE TABLE filtered_log (id int, n int, v text)",
    "CREATE SCHEMA lake",
    "CREATE VIEW lake.filtered_key AS SELECT * FROM filtered_key WHERE id % 2 = 0",
    "CREATE VIEW lake.filtered_index AS SELECT * FROM filtered_index WHERE n > 10 AND n < 1000",
    "CREATE VIEW lake.filtered_full AS SELECT * FROM filtered_full WHERE v > 'b' AND n IS NOT NULL",
    "CREATE VIEW lake.filtered_log AS SELECT * FROM filtered_log WHERE n > 5",
    "CREATE VIEW lake.listed AS SELECT id, n FROM listed",
    "CREATE VIEW lake.made AS SELECT id, n, v FROM made",
)
# How each is published, and then those whose inserts only are.
_AS: dict[str, LiteralString] = {
    "by_key": "by_key",
    "by_index": "by_index",
    "full_bag": "full_bag",
    "full_keyed": "full_keyed",
    "filtered_key": "filtered_key WHERE (id % 2 = 0)",
    "filtered_index": "filtered_index WHERE (n > 10 AND n < 1000)",
    "filtered_full": "filtered_full WHERE (v > 'b' AND n IS NOT NULL)",
    "listed": "listed (n, id)",
    "made": "made",
    "parts": "parts",
}
_INSERTS: dict[str, LiteralString] = {"log": "log", "filtered_log": "filtered_log WHERE (n > 5)"}
_ALL = (*_AS, *_INSERTS)
_PART = ("filtered_key", "filtered_full", "listed", "filtered_log")
_SHOWN = ("filtered_key", "filtered_index", "filtered_full", "filtered_log", "listed", "made")
# Every table has (id, n, v), by_key a `doc` for v; what was 30 rows of ids and ns from 1 on moves about.
_CHANGES: tuple[LiteralString, ...] = (
    # Into the filters and out of them: the server sends an insert, an update, a delete or nothing.
    "UPDATE {t} SET id = id + 101, n = n + 1001 WHERE id BETWEEN 3 AND 9",
    "UPDATE {t} SET {v} = CASE WHEN id % 3 = 0 THEN 'a' ELSE 'z' || id END WHERE id > 12",
    "UPDATE {t} SET {v} = NULL WHERE id = 20",
    "UPDATE {t} SET n = n + 5000 WHERE id = 21",
    "UPDATE {t} SET {v} = 'back', n = n - 1001, id = id - 101 WHERE id = 105",
    "DELETE FROM {t} WHERE id IN (1, 2, 22, 110)",
    # The key alone: what is stored out of line stays as it is.
    "UPDATE {t} SET id = id + 2000, n = n + 20000 WHERE id IN (10, 11)",
    "INSERT INTO {t} (id, n, {v}) VALUES (500, 500, 'new'), (501, 501, 'b')",
    "DELETE FROM {t} WHERE id = 501",
)
_ROUND_TWO: tuple[LiteralString, ...] = (
    "UPDATE {t} SET id = id + 1, n = n + 40000 WHERE id = 500",
    "UPDATE {t} SET n = n - 40000 WHERE id = 501",
    "UPDATE {t} SET {v} = 'c' WHERE id IN (12, 15, 18)",
    "UPDATE {t} SET {v} = 'a' WHERE id IN (13, 16)",
    "DELETE FROM {t} WHERE id > 2005 OR id = 14",
)


def fill(database: Database, tables: tuple[str, ...], statements: tuple[LiteralString, ...]) -> None:
    """The statements for each of the tables, one transaction each."""
    with database.connect(autocommit=True) as conn:
        for table in tables:
            value = Identifier("doc" if table == "by_key" else "v")
            for text in statements:
                conn.execute(SQL(text).format(t=Identifier(*table.split(".")), v=value))


_ROWS: tuple[LiteralString, ...] = (
    """INSERT INTO {t} (id, n, {v}) SELECT i, i, repeat('b' || i, CASE i % 4 WHEN 0 THEN 2000 ELSE 1 END)
    FROM generate_series(1, 30) i""",
)


def assert_as_shown(config: Config, database: Database, tables: tuple[str, ...]) -> None:
    """Row by row, without our own forms: the newest cut and what the publication shows."""
    lake = SourceLake.open(config.lake, "shop")
    cut = newest_cut(lake)
    assert cut is not None
    names = [n for t in tables for n in (("parts_low", "parts_high") if t == "parts" else (t,))]
    shown = {name: TableName("lake" if name in _SHOWN else "public", name) for name in names}
    assert {t.name for t in cut.tables} == set(names)
    expected = source_rows(database.dsn, tuple(shown.values()))
    for name, view in shown.items():
        position = cut.tables[TableName("public", name)]
        columns, attnums = table_columns(database.dsn, view)
        path = Path(lake.url(lake.paths.current(TableName("public", name))))
        assert lake_rows(path, position.current_version, columns, attnums) == expected[view], name
        assert [c.name for c in position.version.columns] == columns


def statuses(config: Config, source: str, spark: SparkSession) -> dict[str, tuple[str, str | None]]:
    """Each table's status and reason in a proof."""
    actual = prove(config, source, None, spark, request=TABLES_ALONE).tables
    return {t.name: (p.status, p.reason) for t, p in actual.items()}


@pytest.mark.parametrize(("tables", "rounds"), [(_PART, 1), pytest.param(_ALL, 2, marks=pytest.mark.full)])
def test_a_publication_of_tables_with_filters_lists_and_identities_of_every_kind(
    database: Database, spark: SparkSession, tmp_path: Path, tables: tuple[str, ...], rounds: int
) -> None:
    """Rows that move into a filter and out of it, moved keys, unchanged large values, rows that change partitions.

    In `make test` the filters and a column list, in `make test-all` every identity with them.
    """
    database.execute(*_NAMED)
    changed = tuple(t for t in tables if t in _AS)
    database.execute(
        SQL("CREATE PUBLICATION pub FOR TABLE {}").format(SQL(", ").join(SQL(_AS[t]) for t in changed)),
        SQL("CREATE PUBLICATION pub_inserts FOR TABLE {} WITH (publish = 'insert')").format(
            SQL(", ").join(SQL(_INSERTS[t]) for t in tables if t in _INSERTS)
        ),
    )
    fill(database, tables, _ROWS)
    keys = {TableName("public", "full_keyed"): TableConfig(key=("id",))} if "full_keyed" in tables else {}
    source = database.source(buckets=8, table=keys)
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})
    bootstrap(config, "shop")
    for round_ in (_CHANGES, _ROUND_TWO)[:rounds]:
        fill(database, changed, round_)
        fill(database, tuple(t for t in tables if t in _INSERTS), _ROWS)
        assert set(statuses(config, "shop", spark).values()) == {("equal", None)}
        assert_as_shown(config, database, tables)


@pytest.fixture
def other(postgres: EmbeddedPostgres) -> Iterator[Database]:
    """Return another database: a publication of all tables would include ours."""
    with new_database(postgres) as result:
        yield result


@pytest.mark.full
def test_publications_of_schemas_and_of_all_tables(
    database: Database, other: Database, spark: SparkSession, tmp_path: Path, server_version: int
) -> None:
    """Partitioned tables by their root, generated columns if the server sends them, operations that are left out."""
    schema = tuple(f"s.{name}" for name in ("plain", "made", "root"))
    everything = ("one", "two", "emptied")
    generated = SQL("STORED, g int GENERATED ALWAYS AS (n) VIRTUAL" if server_version >= 18 else "STORED")
    database.execute(
        "CREATE SCHEMA s",
        "CREATE TABLE s.plain (id int PRIMARY KEY, n int, v text)",
        SQL("CREATE TABLE s.made (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) {}, v text)").format(
            generated
        ),
        "CREATE TABLE s.root (id int, n int, v text, PRIMARY KEY (id, n)) PARTITION BY RANGE (id)",
        "CREATE TABLE s.low PARTITION OF s.root FOR VALUES FROM (0) TO (20)",
        "CREATE TABLE s.high PARTITION OF s.root FOR VALUES FROM (20) TO (1000000) PARTITION BY LIST (id)",
        "CREATE TABLE s.high_some PARTITION OF s.high FOR VALUES IN (20, 21, 22, 23, 24, 500)",
        "CREATE TABLE s.high_rest PARTITION OF s.high DEFAULT",
        "CREATE TABLE public.another (id int PRIMARY KEY)",
        SQL("CREATE PUBLICATION pub FOR TABLES IN SCHEMA s WITH (publish_via_partition_root{})").format(
            SQL(", publish_generated_columns = stored" if server_version >= 18 else "")
        ),
    )
    fill(database, schema, _ROWS)
    for name in everything:
        other.execute(SQL("CREATE TABLE {} (id int PRIMARY KEY, n int, v text)").format(Identifier(name)))
    other.execute("CREATE PUBLICATION pub FOR ALL TABLES WITH (publish = 'insert, update, delete')")
    fill(other, everything, _ROWS)
    config = Config(
        path=tmp_path / "w.yaml",
        lake=str(tmp_path / "lake"),
        sources={
            "shop": database.source(buckets=8),
            "all": other.source(buckets=8, name="all"),
        },
    )
    bootstrap(config, "shop")
    bootstrap(config, "all")
    for round_ in (_CHANGES, _ROUND_TWO):
        fill(database, schema, round_)
        fill(other, everything, round_)
        assert statuses(config, "shop", spark) == dict.fromkeys(("plain", "made", "root"), ("equal", None))
        assert statuses(config, "all", spark) == dict.fromkeys(everything, ("equal", None))
    cut = newest_cut(SourceLake.open(config.lake, "shop"))
    assert cut is not None
    names = [c.name for c in cut.tables[TableName("s", "made")].version.columns]
    assert names == (["id", "n", "twice", "v"] if server_version >= 18 else ["id", "n", "v"])

    other.execute("TRUNCATE emptied", "INSERT INTO emptied VALUES (1, 1, 'after')")
    actual = statuses(config, "all", spark)
    assert (actual["one"], actual["two"]) == (("equal", None), ("equal", None))
    assert actual["emptied"][0] == "not applicable"
    assert "does not send truncate" in (actual["emptied"][1] or "")
