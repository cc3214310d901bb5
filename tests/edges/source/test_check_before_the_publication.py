"""`check` says before the publication exists what it says of the same tables once they are published.

What `plan` makes of the configuration is in test_source_publish.py; the grants that it shows in test_role_grants.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.sql import SQL, Identifier
from pydantic import SecretStr

from lakeproof.commands.check import CheckReport, check_source
from lakeproof.commands.publish import apply, plan
from lakeproof.config.model import Config
from lakeproof.config.table_names import parse_selected, parse_table
from lakeproof.names import TableName
from lakeproof.postgres.checks.findings import Severity
from tests.support.servers.fix_postgres import Database

pytestmark = [pytest.mark.postgres]
_TABLES = ("public.keyed", "public.bare", "public.amounts", "inner_one.far")


@pytest.fixture
def shop(database: Database) -> Database:
    """Tables of several kinds in two schemas, with rows."""
    database.execute(
        "CREATE SCHEMA inner_one",
        "CREATE TABLE keyed (id int PRIMARY KEY, v text) WITH (autovacuum_enabled = off)",
        "CREATE TABLE bare (v text)",
        "CREATE TABLE amounts (id int PRIMARY KEY, total numeric, doc text)"
        " WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off)",
        "ALTER TABLE amounts ALTER doc SET STORAGE EXTERNAL",
        "CREATE TABLE inner_one.far (id int, v int, PRIMARY KEY (id, v))",
        "INSERT INTO keyed SELECT i, 'x' FROM generate_series(1, 5000) i",
        "INSERT INTO amounts SELECT i, i, repeat(md5(i::text), 1000) FROM generate_series(1, 20) i",
    )
    return database


def _check(database: Database, lake: Path, **settings: object) -> CheckReport:
    config = Config(path=lake, lake=str(lake), sources={"shop": database.source(**settings)})
    return check_source(config, "shop")


def _texts(report: CheckReport, severity: Severity) -> list[str]:
    return [str(finding) for finding in report.findings if finding.severity is severity]


def test_privileges_are_named_before_anything_is_changed(shop: Database, tmp_path: Path) -> None:
    """USAGE and SELECT of each table, with the statement; after these there is one error: that nothing is published."""
    dsn = SecretStr(shop.role("LOGIN REPLICATION"))
    role = shop.roles[0]
    tables = tuple(map(parse_table, _TABLES))
    errors = _texts(_check(shop, tmp_path, dsn=dsn, tables=tables), Severity.ERROR)
    assert [text for text in errors if f"GRANT SELECT ON public.keyed TO {role}" in text]
    assert [text for text in errors if f"GRANT USAGE ON SCHEMA inner_one TO {role}" in text]
    shop.execute(
        SQL("GRANT USAGE ON SCHEMA inner_one TO {}").format(Identifier(role)),
        SQL("GRANT SELECT ON ALL TABLES IN SCHEMA public, inner_one TO {}").format(Identifier(role)),
    )
    (error,) = _texts(_check(shop, tmp_path, dsn=dsn, tables=tables), Severity.ERROR)
    assert "publication pub: it does not exist" in error
    assert shop.rows("SELECT 1 FROM pg_publication") == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("patterns", [False, True])
def test_tables_types_and_identities_are_those_of_later(shop: Database, tmp_path: Path, patterns: bool) -> None:
    """By name or by pattern: the same lines and the same findings about tables, before and after `apply`."""
    chosen: dict[str, object] = {"tables": tuple(map(parse_table, _TABLES))}
    if patterns:
        chosen = {"patterns": (parse_selected("public.*"), parse_selected("inner_one.*"))}
    before = _check(shop, tmp_path, **chosen)
    assert {(str(t.name), t.kept, t.key) for t in before.tables} == {
        ("public.keyed", "keyed", ("id",)),
        ("public.bare", "history only", ()),
        ("public.amounts", "keyed", ("id",)),
        ("inner_one.far", "keyed", ("id", "v")),
    }
    assert [text for text in _texts(before, Severity.NOTE) if "kept as exact text: total" in text]
    config = Config(path=tmp_path, lake=str(tmp_path), sources={"shop": shop.source(**chosen)})
    apply(config, "shop", plan(config, "shop"))
    after = _check(shop, tmp_path, **chosen)
    assert after.tables == before.tables
    about_tables = [{f for f in report.findings if f.table is not None} for report in (before, after)]
    assert about_tables[0] == about_tables[1]


def test_what_could_not_be_published_is_named(shop: Database, tmp_path: Path) -> None:
    """A key that is generated, and so not sent; a name that is no table's."""
    shop.execute("CREATE TABLE made (a int) PARTITION BY LIST (a)", "CREATE TABLE empty ()")
    names = ("public.empty", "public.keyd")
    errors = _texts(_check(shop, tmp_path, tables=tuple(map(parse_table, names))), Severity.ERROR)
    assert [text for text in errors if "table public.empty: it has no published column" in text]
    assert [text for text in errors if "did you mean public.keyed?" in text]


def test_sizes_are_those_of_now(shop: Database, tmp_path: Path) -> None:
    """Tables that nobody has analyzed have theirs, with the values that are stored out of line."""
    sizes = {t.name: t.pages for t in _check(shop, tmp_path, tables=tuple(map(parse_table, _TABLES))).tables}
    [(pages, block)] = shop.rows(
        "SELECT relpages, current_setting('block_size')::int FROM pg_class WHERE relname = 'keyed'"
    )
    assert pages == 0
    assert sizes[TableName("public", "keyed")] * block == shop.value("SELECT pg_relation_size('keyed')")
    assert sizes[TableName("public", "amounts")] * block > 20 * 32_000
    assert sizes[TableName("public", "bare")] == 0
