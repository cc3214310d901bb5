"""Databases in other encodings than UTF-8: exact if the server converts; a text that is not UTF-8 holds its table alone.

The whole journey: bootstrap, drain, compaction, proof; the first of them without Spark, which is quick.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.sql import SQL
from pyspark.sql import SparkSession

from demo.server import EmbeddedPostgres
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.check import check_source
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.names import TableName
from lakeproof.postgres.checks.findings import Severity
from lakeproof.snapshot.run import SnapshotIncompleteError
from tests.support.ingest.fix_drain import SOURCE, Drained
from tests.support.ingest.snapshot_rows import copied_and_landed
from tests.support.servers.fix_postgres import Database, new_database
from tests.support.spark.spark_steps import TABLES_ALONE

pytestmark = pytest.mark.postgres
GOOD, BAD, WORSE = (TableName("public", name) for name in ("good", "bad", "worse"))
# café, in LATIN1: no UTF-8.
_OCTETS = "convert_from('\\x636166e9', 'SQL_ASCII')"


def make_config(database: Database, folder: Path) -> Config:
    """A source on this database."""
    return Config(
        path=folder / "lakeproof.yaml", lake=str(folder / "lake"), sources={"shop": database.source(buckets=16)}
    )


@pytest.mark.parametrize(("encoding", "text"), [("LATIN1", "Ünï ÿ"), ("LATIN2", "łódź")])
def test_a_database_in_another_encoding_is_checked_copied_and_drained(
    postgres: EmbeddedPostgres, tmp_path: Path, encoding: str, text: str
) -> None:
    """Every statement of the pipeline is one that such a server can read, and every text is what it was."""
    with new_database(postgres, encoding) as database:
        shop = Drained(database, tmp_path / "lake")
        with database.connect() as conn:
            conn.execute("SET client_encoding = 'UTF8'")
            conn.execute(SQL(f'CREATE TABLE good (id int PRIMARY KEY, "{text}" text)'))
            conn.execute("INSERT INTO good VALUES (1, %s), (2, 'plain')", (text,))
            conn.execute("CREATE PUBLICATION shop FOR ALL TABLES")
            assert [
                f.reason for f in check_source(shop.config(), SOURCE).findings if f.severity is Severity.ERROR
            ] == []
            assert not bootstrap(shop.config(), SOURCE).failed
            conn.execute("INSERT INTO good VALUES (3, %s)", (text,))
            conn.execute("ALTER TABLE good ADD COLUMN v text")
            conn.execute("UPDATE good SET v = %s WHERE id = 2", (text[::-1],))
            shop.drain()
        landed = {row[0]: row[1:] for row in copied_and_landed(shop, GOOD)}
    assert landed == {1: (text,), 2: ("plain", text[::-1]), 3: (text,)}


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.parametrize(
    ("encoding", "texts"),
    [("LATIN1", ["", "é", "Ünï ÿ", "¤\u00a0"]), ("EUC_JP", ["", "日本語", "ｱｲｳ", "\uff5e∥"])],
)
def test_what_the_server_converts_is_exact(
    postgres: EmbeddedPostgres, spark: SparkSession, tmp_path: Path, encoding: str, texts: list[str]
) -> None:
    """Texts as keys, in arrays, in char(n), in bags and as names, by snapshot and by stream, proven equal."""
    with new_database(postgres, encoding) as database:
        named = texts[1].replace('"', "")
        with database.connect() as conn:
            conn.execute("SET client_encoding = 'UTF8'")
            conn.execute(SQL(f'CREATE TABLE keyed (k text PRIMARY KEY, "{named}" char(5), a text[], j jsonb)'))
            conn.execute("CREATE TABLE bag (v text, e varchar)")
            conn.execute("ALTER TABLE bag REPLICA IDENTITY FULL")
            conn.execute("CREATE PUBLICATION pub FOR ALL TABLES")
        config = make_config(database, tmp_path)
        for round_ in range(2):
            with database.connect() as conn:
                conn.execute("SET client_encoding = 'UTF8'")
                for text in texts:
                    row = (f"{round_}{text}", text[:5], [text, None, f'{text}"'], f'{{"a": "{text}"}}')
                    conn.execute("INSERT INTO keyed VALUES (%s, %s, %s, %s)", row)
                    conn.execute("INSERT INTO bag VALUES (%s, %s), (%s, NULL)", (text, text, text))
                conn.execute("UPDATE keyed SET k = k || %s WHERE k LIKE '0%%'", (f"{texts[-1]}!",))
                conn.execute("DELETE FROM bag WHERE v = %s AND e IS NULL", (texts[1],))
            if round_ == 0:
                assert not bootstrap(config, "shop").failed
        proof = prove(config, "shop", None, spark, request=TABLES_ALONE)
        assert {str(t): p.status for t, p in proof.tables.items()} == {"public.keyed": "equal", "public.bag": "equal"}


@pytest.mark.full
@pytest.mark.spark
def test_a_text_that_is_not_utf8_holds_its_table_alone(
    postgres: EmbeddedPostgres, spark: SparkSession, tmp_path: Path
) -> None:
    """A snapshot leaves the table out, the stream holds it; the others go on, and a corrected table comes back."""
    with new_database(postgres, "SQL_ASCII") as database:
        database.execute(
            "CREATE TABLE good (id int PRIMARY KEY, v text)",
            "CREATE TABLE bad (id int PRIMARY KEY, v text, n int)",
            "CREATE TABLE worse (id int PRIMARY KEY, v text)",
            "INSERT INTO good VALUES (1, convert_from('\\xc3a9', 'SQL_ASCII'))",
            "INSERT INTO bad VALUES (1, 'fine', 1)",
            SQL("INSERT INTO worse VALUES (1, {})").format(SQL(_OCTETS)),
            "CREATE PUBLICATION pub FOR ALL TABLES",
        )
        config = make_config(database, tmp_path)
        assert any("SQL_ASCII" in f.reason for f in check_source(config, "shop").findings)
        with pytest.raises(SnapshotIncompleteError) as incomplete:
            bootstrap(config, "shop")
        failed = incomplete.value.report.failed
        assert list(failed) == [WORSE]
        assert "not UTF-8" in failed[WORSE]

        database.execute(
            "INSERT INTO good VALUES (2, 'later')",
            "UPDATE bad SET n = 2",
            SQL("INSERT INTO bad VALUES (2, {}, 3)").format(SQL(_OCTETS)),
            "INSERT INTO good VALUES (3, 'after it')",
        )
        proof = prove(config, "shop", None, spark, request=TABLES_ALONE)
        assert proof.tables[GOOD].status == "equal"
        assert proof.tables[GOOD].lake_rows == 3
        held = proof.tables[BAD]
        assert held.status == "held"
        assert "column v has a text that is not UTF-8" in str(held.reason)
        assert "caf" not in str(held.reason)

        database.execute("UPDATE bad SET v = 'cafe' WHERE id = 2", "UPDATE worse SET v = NULL")
        assert not bootstrap(config, "shop", [BAD, WORSE]).failed
        proof = prove(config, "shop", None, spark, request=TABLES_ALONE)
        assert {t: (p.status, p.reason) for t, p in proof.tables.items() if p.status != "equal"} == {}
        assert proof.tables[BAD].lake_rows == 2
