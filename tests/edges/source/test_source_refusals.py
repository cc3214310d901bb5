"""`check` refuses exactly what PostgreSQL refuses the application once the table is published.

Identities, row filters, column lists and operations, each with each; the server is asked by updating and deleting rows.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL
from typing_extensions import LiteralString

from lakeproof.commands.check import check_source
from lakeproof.config.model import Config
from lakeproof.names import TableName
from lakeproof.postgres.catalog.published import read_tables
from lakeproof.postgres.checks.findings import Severity
from lakeproof.postgres.connections.connect import Connection
from tests.support.servers.fix_postgres import Database

pytestmark = [pytest.mark.postgres, pytest.mark.since(15)]
T = TableName("public", "t")

IDENTITIES: tuple[LiteralString, ...] = ("DEFAULT", "FULL", "USING INDEX t_b", "NOTHING")
FILTERS: tuple[LiteralString, ...] = (
    "",
    "WHERE (id > 1)",
    "WHERE (v = 'x')",
    "WHERE (b > 0)",
    "WHERE (id > 1 AND b > 0)",
)
COLUMNS: tuple[LiteralString, ...] = ("", "(id, v)", "(b)", "(v)", "(id, b, v)")
OPERATIONS: tuple[LiteralString, ...] = (
    "insert, update, delete, truncate",
    "insert, update",
    "insert, delete",
    "insert",
)


def refused_by_postgres(conn: Connection) -> bool:
    """True if an update or a delete of a row fails."""
    for statement in ("UPDATE t SET v = v", "DELETE FROM t"):
        try:
            with conn.transaction(force_rollback=True):
                conn.execute(SQL(statement))
        except psycopg.errors.InvalidColumnReference:
            return True
        except psycopg.errors.ObjectNotInPrerequisiteState:
            return True
    return False


@pytest.mark.parametrize("identity", IDENTITIES)
def test_what_is_refused_is_what_the_server_refuses(
    database: Database, tmp_path: Path, identity: LiteralString
) -> None:
    """All combinations are tried; `check` has an error if the server would refuse the application's own changes."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, b int NOT NULL, v text)",
        "CREATE UNIQUE INDEX t_b ON t (b)",
        SQL("ALTER TABLE t REPLICA IDENTITY {}").format(SQL(identity)),
        "INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'y')",
    )
    source = database.source()
    config = Config(path=tmp_path, lake=str(tmp_path / "lake"), sources={"shop": source})
    seen = set()
    with database.connect() as conn:
        for row_filter, columns, operations in product(FILTERS, COLUMNS, OPERATIONS):
            publication = "CREATE PUBLICATION pub FOR TABLE t {} {} WITH (publish = {})"
            conn.execute(SQL(publication).format(SQL(columns), SQL(row_filter), operations))
            refused = refused_by_postgres(conn)
            [table] = read_tables(conn, source).values()
            case = f"{identity} {columns} {row_filter} {operations}"
            assert (table.kept == "refused") == refused, case
            seen.add(refused)
            if operations == OPERATIONS[0] and columns in COLUMNS[:2]:
                errors = [f for f in check_source(config, "shop").findings if f.severity is Severity.ERROR]
                assert [f.table for f in errors] == ([T] if refused else []), (case, errors)
                assert not refused or "the application's own fail" in errors[0].reason
            conn.execute("DROP PUBLICATION pub")
    assert seen == {False, True}


@pytest.mark.parametrize(
    ("identity", "publication", "reason"),
    [
        ("DEFAULT", "WHERE (v = 'x' AND id > 1)", "its row filter reads v, which its identity does not have"),
        ("DEFAULT", "(v)", "not its identity's columns id"),
        ("FULL", "(id, b, v)", "its identity is FULL, with which there can be no column list"),
        ("NOTHING", "", "its replica identity is NOTHING"),
    ],
)
def test_check_says_why_the_changes_will_be_refused(
    database: Database, tmp_path: Path, identity: LiteralString, publication: LiteralString, reason: str
) -> None:
    """The check's finding comes before the application's changes fail."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, b int, v text)",
        SQL("ALTER TABLE t REPLICA IDENTITY {}").format(SQL(identity)),
        SQL("CREATE PUBLICATION pub FOR TABLE t {}").format(SQL(publication)),
    )
    config = Config(path=tmp_path, lake=str(tmp_path / "lake"), sources={"shop": database.source()})
    [error] = [f for f in check_source(config, "shop").findings if f.severity is Severity.ERROR]
    assert error.reason == f"deletes and updates are published, but {reason}: the application's own fail"
