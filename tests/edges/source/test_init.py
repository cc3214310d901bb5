"""`lakeproof init`: what it writes is a configuration that the other commands take as it is, and it has no secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL

from lakeproof.cli.main import main
from lakeproof.commands.init import _without_password
from lakeproof.config.load import load
from lakeproof.names import TableName
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres


@pytest.fixture
def erp(database: Database) -> Database:
    """Tables of every sort, with names that YAML or a terminal would take for something else."""
    database.execute(
        "CREATE SCHEMA erp",
        "CREATE TABLE erp.orders (id int PRIMARY KEY, total numeric, prefs jsonb)",
        "CREATE TABLE erp.log (line text)",
        "CREATE TABLE erp.whole (a int, b int)",
        "ALTER TABLE erp.whole REPLICA IDENTITY FULL",
        "CREATE UNLOGGED TABLE erp.cache (id int PRIMARY KEY)",
        "CREATE TABLE erp.days (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE erp.days_1 PARTITION OF erp.days DEFAULT",
        "CREATE VIEW erp.v AS SELECT 1 AS one",
        'CREATE SCHEMA "1"',
        'CREATE TABLE "1"."5 # *: \'""\n- x" ("c\n- y" int PRIMARY KEY)',
    )
    return database


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(list(words))
    message = capsys.readouterr()
    return status, message.out, message.err


def test_what_is_written_is_taken_by_every_other_command(
    erp: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file lists each table that can be followed and reasons for the others; the source is copied and drained by it."""
    file = tmp_path / "lakeproof.yaml"
    secret = str(conninfo_to_dict(erp.dsn)["password"])
    status, out, _ = _run(capsys, "init", "--dsn", erp.dsn, "--name", "erp", "-c", str(file))
    assert status == 0
    assert "erp.cache: it is unlogged" in out
    assert "set ERP_PASSWORD" in out
    text = file.read_text()
    assert secret not in text + out
    for line in (
        "erp.orders  # 3 columns; key id",
        "erp.log  # 1 column; no identity",
        "total (numeric), prefs (jsonb)",
    ):
        assert line in text, text
    odd = TableName("1", "5 # *: '\"\n- x")
    source = load(file).sources["erp"]
    named = [TableName("erp", name) for name in ("days", "log", "orders", "whole")]
    assert sorted(source.tables) == sorted([odd, *named])
    monkeypatch.setenv("ERP_PASSWORD", secret)
    for command in ("apply", "check", "bootstrap"):
        assert _run(capsys, command, "-c", str(file))[0] == 0
    erp.execute("INSERT INTO erp.orders VALUES (1, 2.5, '{}')", "INSERT INTO erp.days VALUES (1), (2)")
    status, out, _ = _run(capsys, "drain", "--once", "--json", "-c", str(file))
    assert status == 0
    landed = {name: table["inserts"] for name, table in json.loads(out)["tables"].items() if table["inserts"]}
    assert landed == {
        "erp.orders": erp.value("SELECT count(*) FROM erp.orders"),
        "erp.days": erp.value("SELECT count(*) FROM erp.days"),
    }
    assert _run(capsys, "teardown", "--yes", "-c", str(file))[0] == 0


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("user=me   dbname=shop host=h port=5", "user=me   dbname=shop host=h port=5"),
        ("user=me password='a b' dbname=shop host=h", "user=me dbname=shop host=h"),
        (r"host=h password=\'x dbname = 'my shop' user=me", "host=h dbname='my shop' user=me"),
        ("postgresql://me@h:5/shop?sslmode=require", "postgresql://me@h:5/shop?sslmode=require"),
    ],
)
def test_the_dsn_is_written_as_it_was_typed(typed: str, written: str) -> None:
    """In its own order and form, without the password."""
    assert _without_password(typed)[0] == written


def test_a_password_in_a_uri_is_not_written() -> None:
    """A URI that has one is written as words."""
    public, password = _without_password("postgresql://me:secret@h:5/shop")
    assert (conninfo_to_dict(public), password) == (
        {"user": "me", "host": "h", "port": "5", "dbname": "shop"},
        "secret",
    )


def test_a_column_that_is_not_sent_is_named_on_the_line_of_its_table(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str], server_version: int
) -> None:
    """Generated columns: before PostgreSQL 18 those that are stored, from it on those that are virtual."""
    kind = "VIRTUAL" if server_version >= 18 else "STORED"
    create = SQL("CREATE TABLE lines (id int PRIMARY KEY, a int, total int GENERATED ALWAYS AS (a * 2) {})")
    database.execute(create.format(SQL(kind)))
    file = tmp_path / "lakeproof.yaml"
    assert _run(capsys, "init", "--dsn", database.dsn, "--name", "erp", "-c", str(file))[0] == 0
    assert "public.lines  # 2 columns, without total (generated); key id" in file.read_text()


def test_an_existing_file_is_not_overwritten(erp: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file stays whatever it holds; the server is not asked."""
    file = tmp_path / "lakeproof.yaml"
    file.write_text("mine")
    status, _, err = _run(capsys, "init", "--dsn", make_conninfo(erp.dsn, port=1), "-c", str(file))
    assert (status, file.read_text()) == (2, "mine")
    assert "is not overwritten; name another file with -c FILE" in err


@pytest.mark.parametrize(
    ("dsn", "name", "reason"),
    [
        ("host=127.0.0.1 user=x password=hunter2", None, "names no database"),
        ("postgresql://x:hunter2@h/d?hunter2", None, "is not a libpq connection string"),
        ("dbname=x sslpassword=hunter2", None, "carries a secret (sslpassword)"),
        ("dbname=x password=hunter2", "Shop", "--name Shop: is no source's name"),
        ("dbname=x password=hunter2", "views", "--name views: is no source's name"),
    ],
)
def test_what_can_not_be_is_refused_without_repeating_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], dsn: str, name: str | None, reason: str
) -> None:
    """The refusal comes before any connection, and nothing is written."""
    file = tmp_path / "lakeproof.yaml"
    named = [] if name is None else ["--name", name]
    status, out, err = _run(capsys, "init", "--dsn", dsn, *named, "-c", str(file))
    assert status == 2
    assert reason in err
    assert "hunter2" not in out + err
    assert not file.exists()
