"""Generated columns: what is not sent is named, and from PostgreSQL 18 on stored ones are published, copied and followed.

How a change of what is sent is recorded is in `test_catalog_differences.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.cli.lake_commands import proof_page
from lakeproof.cli.results import to_json
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.check import check_source
from lakeproof.commands.prove import prove
from lakeproof.commands.publish import apply, plan
from lakeproof.config.model import Config
from lakeproof.lake.cycle.runner import CutReport
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import TableName
from lakeproof.postgres.catalog.published import read_tables
from lakeproof.postgres.checks.findings import Severity
from lakeproof.postgres.connections.connect import connect
from lakeproof.proof.record import read_record
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.compare import lake_rows, source_rows, table_columns
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE, into_the_lake

pytestmark = [pytest.mark.postgres]

LINE, BAG, PLAIN = TableName("public", "line"), TableName("public", "bag"), TableName("public", "plain")
_TABLES = (
    """CREATE TABLE line (id int PRIMARY KEY, qty int, unit numeric(8,2),
        amount numeric(12,2) GENERATED ALWAYS AS (qty * unit) STORED,
        "Words" tsvector GENERATED ALWAYS AS (to_tsvector('english', qty::text)) STORED)""",
    "CREATE TABLE bag (v text, long int GENERATED ALWAYS AS (length(v)) STORED)",
    "CREATE TABLE plain (id int PRIMARY KEY)",
)


def _config(database: Database, lake: Path, *tables: TableName) -> Config:
    source = database.source(tables=tables, buckets=8)
    return Config(path=lake / "lakeproof.yaml", lake=str(lake / "lake"), sources={"shop": source})


def _warnings(config: Config) -> list[str]:
    return [str(f) for f in check_source(config, "shop").findings if f.severity is Severity.WARNING and f.table]


def _held(cuts: list[CutReport]) -> set[TableName]:
    return set(cuts[-1].held) if cuts else set()


def _assert_lake_is_source(config: Config, database: Database, *tables: TableName) -> None:
    """Every column, generated ones too, without our own forms."""
    lake = SourceLake.open(config.lake, "shop")
    cut = newest_cut(lake)
    assert cut is not None
    expected = source_rows(database.dsn, tables)
    for table in tables:
        names, attnums = table_columns(database.dsn, table)
        there = lake_rows(Path(lake.url(lake.paths.current(table))), cut.tables[table].current_version, names, attnums)
        assert there == expected[table]


def test_before_18_they_are_named_with_the_line_of_a_view(
    database: Database, tmp_path: Path, server_version: int
) -> None:
    """`check` names them with their expressions, `plan` and `bootstrap` with their names."""
    if server_version >= 18:
        pytest.skip("it sends stored ones; a publication that leaves them out is the next test's")
    database.execute(*_TABLES)
    config = _config(database, tmp_path, LINE, BAG)
    planned = plan(config, "shop")
    assert "publish_generated_columns" not in " ".join(planned.statements)
    assert "public.line: not published, so not in the lake: amount (generated), Words (generated)" in planned.notes
    apply(config, "shop", planned)
    of_line, of_bag = sorted(_warnings(config), key=lambda text: "line" not in text)
    assert "amount, Words are generated columns, which PostgreSQL before 18 does not send" in of_line
    assert "((qty)::numeric * unit) AS amount, to_tsvector('english'::regconfig, (qty)::text) AS \"Words\"" in of_line
    assert "long is a generated column" in of_bag
    assert "length(v) AS long" in of_bag
    copied = bootstrap(config, "shop")
    assert {t: [c.name for c in columns] for t, columns in copied.left_out.items()} == {
        LINE: ["amount", "Words"],
        BAG: ["long"],
    }


@pytest.mark.since(18)
def test_a_new_publication_sends_stored_ones_and_check_names_virtual_ones(database: Database, tmp_path: Path) -> None:
    """Both publications are made with the option; a virtual column can't be published, and is named."""
    database.execute(*_TABLES, "ALTER TABLE line ADD half int GENERATED ALWAYS AS (qty / 2) VIRTUAL")
    config = _config(database, tmp_path, LINE, BAG, PLAIN)
    planned = plan(config, "shop")
    assert [s.count("publish_generated_columns = stored") for s in planned.statements if "CREATE" in s] == [1, 1]
    assert [note for note in planned.notes if "not published" in note] == [
        "public.line: not published, so not in the lake: half (generated)"
    ]
    apply(config, "shop", planned)
    (warned,) = _warnings(config)
    assert warned == (
        "table public.line: half is a virtual generated column, which PostgreSQL does not send: neither the lake nor a "
        "proof has it; compute in a view: (qty / 2) AS half"
    )
    with connect(database.secret) as conn:
        actual = read_tables(conn, config.sources["shop"])
    assert [c.name for c in actual[LINE].version.columns] == ["id", "qty", "unit", "amount", "Words"]
    assert plan(config, "shop").empty


@pytest.mark.since(18)
def test_a_publication_without_them_is_named_and_gets_the_option_if_no_table_changes(
    database: Database, tmp_path: Path
) -> None:
    """Tables that are published already keep their schema until a person says so; the remedy is the statement."""
    database.execute(
        *_TABLES,
        "CREATE PUBLICATION pub FOR TABLE plain",
        "CREATE PUBLICATION pub_inserts FOR TABLE bag WITH (publish = 'insert, truncate')",
    )
    config = _config(database, tmp_path, PLAIN, LINE, BAG)
    planned = plan(config, "shop")
    assert planned.statements == (
        'ALTER PUBLICATION "pub" SET (publish_generated_columns = stored)',
        'ALTER PUBLICATION "pub" ADD TABLE ONLY "public"."line"',
    )
    (warned,) = [text for text in _warnings(config) if "long" in text]
    assert "ALTER PUBLICATION pub_inserts SET (publish_generated_columns = stored)" in warned
    assert "lakeproof bootstrap shop --tables public.bag" in warned
    apply(config, "shop", planned)
    database.execute("CREATE TABLE more (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)")
    database.execute("ALTER PUBLICATION pub SET (publish_generated_columns = none)")
    more = TableName("public", "more")
    planned = plan(_config(database, tmp_path, PLAIN, LINE, BAG, more), "shop")
    assert planned.statements == ('ALTER PUBLICATION "pub" ADD TABLE ONLY "public"."more"',)
    assert "public.more: not published, so not in the lake: twice (generated)" in planned.notes


@pytest.mark.slow
def test_the_proof_names_what_it_does_not_compare(database: Database, no_spark: SparkOnDemand, tmp_path: Path) -> None:
    """The page, the JSON and the record name the column; the table is equal as far as it is published."""
    database.execute(*_TABLES[:1], "CREATE PUBLICATION pub FOR TABLE line")
    database.execute("INSERT INTO line (id, qty, unit) SELECT i, i, 1.5 FROM generate_series(1, 9) i")
    config = _config(database, tmp_path, LINE)
    bootstrap(config, "shop")
    proof = prove(config, "shop", None, no_spark)
    assert proof.tables[LINE].status == "equal"
    left_out = (
        "public.line: columns not published, so neither in the lake nor compared: amount (generated), Words (generated)"
    )
    assert proof_page(proof).splitlines().count(left_out) == 1
    document = json.loads(json.dumps(to_json(proof)))
    assert document["tables"]["public.line"]["left_out"] == [
        {"name": "amount", "generated": "stored"},
        {"name": "Words", "generated": "stored"},
    ]
    recorded = read_record(SourceLake.open(config.lake, "shop")).tables
    assert recorded[LINE].left_out == ("amount", "Words")


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.since(18)
def test_copy_and_stream_have_the_same_of_them(database: Database, spark: SparkSession, tmp_path: Path) -> None:
    """Rows of the snapshot, of the stream and of a table that was switched on later: as the source has them."""
    database.execute(*_TABLES, "CREATE PUBLICATION pub_inserts FOR TABLE bag WITH (publish = 'insert, truncate')")
    config = _config(database, tmp_path, LINE, BAG)
    apply(config, "shop", plan(config, "shop"))
    fill = "INSERT INTO {} SELECT i, i, i / 4.0 FROM generate_series({}, {}) i"
    with database.connect() as conn:
        conn.execute(fill.format("line (id, qty, unit)", 1, 50).encode())
        conn.execute("INSERT INTO bag (v) SELECT repeat('x', i) FROM generate_series(1, 20) i")
    bootstrap(config, "shop")
    with database.connect() as conn:
        conn.execute(fill.format("line (id, qty, unit)", 51, 90).encode())
        conn.execute("UPDATE line SET qty = qty + 1 WHERE id % 3 = 0")
        conn.execute("DELETE FROM line WHERE id = 7")
    assert not _held(into_the_lake(config, spark))
    _assert_lake_is_source(config, database, LINE)
    # A column that was there all along is sent from now on: what the older rows have in it was never sent.
    database.execute("ALTER PUBLICATION pub_inserts SET (publish_generated_columns = stored)")
    database.execute("INSERT INTO bag (v) VALUES ('after')")
    assert _held(into_the_lake(config, spark)) == {BAG}
    bootstrap(config, "shop", [BAG])
    database.execute(
        "ALTER TABLE line ALTER amount SET EXPRESSION AS (qty * unit + 1)", "INSERT INTO bag (v) VALUES ('')"
    )
    assert _held(into_the_lake(config, spark)) == {LINE}
    bootstrap(config, "shop", [LINE])
    assert not _held(into_the_lake(config, spark))
    _assert_lake_is_source(config, database, LINE, BAG)
    assert prove(config, "shop", None, spark, request=TABLES_ALONE).equal


@pytest.mark.full
@pytest.mark.slow
def test_a_column_that_is_generated_no_more_is_not_taken_for_a_new_one(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    """DROP EXPRESSION: it is sent from then on, and older rows have values in it that were not; a copy brings them."""
    database.execute(*_TABLES[:1], "CREATE PUBLICATION pub FOR TABLE line")
    database.execute("INSERT INTO line (id, qty, unit) SELECT i, i, 1.5 FROM generate_series(1, 9) i")
    config = _config(database, tmp_path, LINE)
    bootstrap(config, "shop")
    assert not _held(into_the_lake(config, spark))
    database.execute('ALTER TABLE line ALTER amount DROP EXPRESSION, ALTER "Words" DROP EXPRESSION')
    database.execute("UPDATE line SET amount = 0 WHERE id = 2")
    assert _held(into_the_lake(config, spark)) == {LINE}
    bootstrap(config, "shop", [LINE])
    assert not _held(into_the_lake(config, spark))
    _assert_lake_is_source(config, database, LINE)
    assert prove(config, "shop", None, spark, request=TABLES_ALONE).equal
