"""A table that can't be published safely, copied or named is refused by itself, and all others go on.

Seen once: a table without a key refused the source whole, at every command. What makes a table unfit is in
`tests/edges/source/test_source_checks.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from lakeproof.cli.main import main
from lakeproof.commands.prove import prove
from lakeproof.config.load import load
from lakeproof.config.model import Config
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import TableName
from lakeproof.state.absent import absence
from lakeproof.state.source_state import SourceState
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import into_the_lake

# One of the tables is published with some of its columns.
pytestmark = [pytest.mark.postgres, pytest.mark.since(15)]

SECRET = "LP_TEST_UNFIT_PASSWORD"  # the variable's name
# Updates without identity, no column, a key that is generated and so not sent, columns listed differently, a wrong pin.
UNFIT = {"bare", "empty", "made", "listed", "pinned"}
FIT = {"good", "cased"}


class Commands:
    """A configuration over one database, and commands run on it in this process."""

    def __init__(self, database: Database, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        parts = conninfo_to_dict(database.dsn)
        parts.pop("password")
        self.file = folder / "lakeproof.yaml"
        self.capture = capture
        lines = [
            f"dsn: {json.dumps(psycopg.conninfo.make_conninfo('', **parts))}",
            f"password: {{env: {SECRET}}}",
            "publication: pub",
            f"slot: {database.name}",
            "buckets: 16",
            "table: {public.pinned: {numeric: {v: [10, 2]}}}",
        ]
        self.file.write_text("\n    ".join(["lake: lake\nsources:\n  shop:", *lines]) + "\n", encoding="utf-8")

    @property
    def config(self) -> Config:
        """Return the configuration as a command reads it."""
        return load(self.file)

    def run(self, *line: str) -> tuple[int, Any]:
        """Exit status and JSON result."""
        self.capture.readouterr()
        status = main(["-c", str(self.file), *line, "--json"])
        captured = self.capture.readouterr()
        assert captured.out, captured.err
        return status, json.loads(captured.out)


@pytest.fixture
def commands(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Commands:
    """All tables published, with their updates and deletes; two are fit for it."""
    monkeypatch.setenv(SECRET, str(conninfo_to_dict(database.dsn)["password"]))
    database.execute(
        "CREATE TABLE good (id int PRIMARY KEY, v text)",
        'CREATE TABLE cased (id int PRIMARY KEY, "Name" text, name text, "NAME" text, _lp_op text)',
        "CREATE TABLE bare (v text)",
        "CREATE TABLE empty ()",
        "CREATE TABLE made (a int, id int GENERATED ALWAYS AS (a + 1) STORED PRIMARY KEY)",
        "CREATE TABLE listed (id int PRIMARY KEY, v text, w text)",
        "CREATE TABLE pinned (id int PRIMARY KEY, v text)",
        "INSERT INTO good SELECT n, 'v' FROM generate_series(1, 9) n",
        "INSERT INTO cased SELECT n, 'A' || n, 'b' || n, NULL, 'c' FROM generate_series(1, 9) n",
        "INSERT INTO bare VALUES ('x')",
        "CREATE PUBLICATION pub FOR TABLE good, cased, bare, empty, made, listed (id, v), pinned",
        "CREATE PUBLICATION pub_inserts FOR TABLE listed (id, w) WITH (publish = 'insert')",
    )
    return Commands(database, tmp_path, capsys)


def _names(tables: set[str]) -> set[str]:
    return {f"public.{name}" for name in tables}


def test_the_others_go_on_and_are_equal_with_names_that_differ_in_case_only(
    database: Database, commands: Commands, no_spark: SparkOnDemand
) -> None:
    """check, plan, apply and bootstrap, of all and of some: status 1 and the reason of each; drain, compact, proof."""
    status, actual = commands.run("check")
    errors = [f for f in actual["sources"]["shop"]["findings"] if f["severity"] == "error"]
    assert (status, {f["table"] for f in errors}) == (1, _names(UNFIT)), errors
    for command in ("plan", "apply"):
        status, actual = commands.run(command)
        assert (status, set(actual["refused"]), actual["statements"]) == (1, _names(UNFIT), []), command
    status, actual = commands.run("bootstrap", "--tables", "public.good,public.bare")
    assert (status, set(actual["tables"]), set(actual["failed"])) == (1, {"public.good"}, {"public.bare"})
    status, actual = commands.run("bootstrap")
    assert (status, set(actual["tables"]), set(actual["failed"])) == (1, {"public.cased"}, _names(UNFIT))
    database.execute(
        "UPDATE cased SET \"Name\" = name, name = 'n', \"NAME\" = 'N', _lp_op = 'delete' WHERE id < 4",
        "DELETE FROM cased WHERE id = 9",
        "INSERT INTO good VALUES (10, 'new')",
        "INSERT INTO bare VALUES ('y')",
        "INSERT INTO empty DEFAULT VALUES",
        "INSERT INTO made (a) VALUES (1)",
        "INSERT INTO pinned VALUES (1, 'no number')",
    )
    # Two publications that list different columns are an error of the server's, for the whole stream.
    database.execute("ALTER PUBLICATION pub_inserts DROP TABLE listed")
    assert commands.run("drain", "--once")[0] == 0
    assert not into_the_lake(commands.config, no_spark)[-1].held
    assert {str(table) for table in absence(SourceState.of(commands.config, "shop")).never_copied} == _names(UNFIT)
    tables = [TableName("public", name) for name in sorted(FIT)]
    proof = prove(commands.config, "shop", tables, no_spark)
    assert {str(t): p.status for t, p in proof.tables.items()} == dict.fromkeys(_names(FIT), "equal")
    lake = read_lake(commands.config)
    shown = [c for c in lake.table("shop", tables[0]).columns if not c.startswith("_lp_")]
    assert shown == ["id", "Name", "#3#name", "#4#NAME", "#5#_lp_op"]


def test_a_source_whose_tables_are_all_unfit_is_refused(database: Database, commands: Commands) -> None:
    """Nothing is made, no slot and no file, and the status is that of a refusal."""
    database.execute("ALTER PUBLICATION pub SET TABLE bare, empty", "DROP PUBLICATION pub_inserts")
    assert commands.run("check")[0] == 2
    for command in ("plan", "apply", "bootstrap"):
        assert main(["-c", str(commands.file), command]) == 2
    assert not database.slots()
    assert not (commands.file.parent / "lake").exists()


def test_a_table_that_would_be_unfit_once_it_is_published_is_not_published(
    database: Database, commands: Commands
) -> None:
    """A partition without the table's identity, a key that is not sent: the application's own updates would fail."""
    database.execute(
        "DROP PUBLICATION pub, pub_inserts",
        "CREATE TABLE parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF parts DEFAULT",
        "ALTER TABLE part REPLICA IDENTITY NOTHING",
    )
    listed = "tables: [public.good, public.made, public.parts, public.bare, public.pinned]"
    commands.file.write_text(f"{commands.file.read_text(encoding='utf-8')}    {listed}\n", encoding="utf-8")
    status, actual = commands.run("apply")
    # A generated key is sent from 18 on.
    sends = int(database.rows("SELECT current_setting('server_version_num')")[0][0]) >= 180000
    result = [] if sends else ["public.made"]
    assert (status, sorted(actual["refused"])) == (1, [*result, "public.parts", "public.pinned"])
    assert database.rows("SELECT pubname::text, tablename::text FROM pg_publication_tables ORDER BY 1, 2") == [
        ("pub", "good"),
        *([("pub", "made")] if sends else []),
        ("pub_inserts", "bare"),
    ]
    database.execute("UPDATE made SET a = 2", "UPDATE parts SET v = 'x'", "UPDATE bare SET v = 'z'")
