"""The plan has what a role lacks to follow a source: attributes, reading, and reading what is made later."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL
from pydantic import SecretStr

from lakeproof.cli.main import main
from lakeproof.commands.publish import plan
from lakeproof.config.model import Config
from lakeproof.config.table_names import TablePattern
from lakeproof.names import TableName
from lakeproof.postgres.connections.connect import connect
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres


def _run(database: Database, statements: tuple[str, ...]) -> None:
    database.execute(*(SQL(statement) for statement in statements))


def test_the_owner_runs_the_grants_and_the_role_then_reads_what_is_made_later(
    database: Database, tmp_path: Path
) -> None:
    """In order: attributes, schemas, tables with their partitions, the future; then nothing is lacking."""
    database.execute(
        "CREATE SCHEMA erp",
        "CREATE SCHEMA parts",
        "CREATE TABLE erp.orders (id int PRIMARY KEY)",
        "CREATE TABLE public.hidden (id int PRIMARY KEY)",
        "ALTER TABLE public.hidden ENABLE ROW LEVEL SECURITY",
        "CREATE TABLE erp.days (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE parts.day_1 PARTITION OF erp.days DEFAULT",
        "CREATE TABLE public.other (id int PRIMARY KEY)",
    )
    dsn = database.role("LOGIN")
    role = str(conninfo_to_dict(dsn)["user"])
    source = database.source(
        dsn=SecretStr(dsn), tables=(TableName("public", "hidden"),), patterns=(TablePattern("erp", "*"),)
    )
    config = Config(path=tmp_path / "lakeproof.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})
    planned = plan(config, "shop")
    assert planned.grants == (
        f'ALTER ROLE "{role}" REPLICATION',
        f'ALTER ROLE "{role}" BYPASSRLS',
        f'GRANT USAGE ON SCHEMA "erp", "parts" TO "{role}"',
        f'GRANT SELECT ON TABLE "erp"."days", "erp"."orders", "parts"."day_1", "public"."hidden" TO "{role}"',
        f'ALTER DEFAULT PRIVILEGES FOR ROLE "postgres" IN SCHEMA "erp" GRANT SELECT ON TABLES TO "{role}"',
    )
    assert any("CREATE on database" in lacking for lacking in planned.lacking)
    try:
        _run(database, (*planned.grants, *planned.statements))
        assert plan(config, "shop").empty
        database.execute("CREATE TABLE erp.later (id int PRIMARY KEY)")
        with connect(SecretStr(dsn)) as conn:
            assert conn.execute("SELECT count(*) FROM erp.later").fetchall() == [(0,)]
        later = plan(config, "shop")
        assert (later.grants, later.statements) == ((), ('ALTER PUBLICATION "pub" ADD TABLE ONLY "erp"."later"',))
    finally:
        database.execute(SQL("DROP OWNED BY {}").format(SQL(f'"{role}"')))


def test_apply_runs_what_the_role_may_and_prints_the_rest(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A role that owns the publication takes a table out of it; what it can't read is for somebody else, with status 1."""
    dsn = database.role("LOGIN REPLICATION")
    role = str(conninfo_to_dict(dsn)["user"])
    database.execute(
        "CREATE TABLE mine (id int PRIMARY KEY)",
        "CREATE TABLE theirs (id int PRIMARY KEY)",
        "CREATE PUBLICATION pub FOR TABLE mine, theirs",
        "COMMENT ON PUBLICATION pub IS 'lakeproof: ours'",
        SQL('ALTER PUBLICATION pub OWNER TO "{}"').format(SQL(role)),
    )
    monkeypatch.setenv("SHOP_DSN", dsn)
    file = tmp_path / "lakeproof.yaml"
    file.write_text(
        f"lake: {tmp_path}/lake\nsources:\n  shop:\n    dsn: {{env: SHOP_DSN}}\n    publication: pub\n"
        f"    slot: {database.name}\n    tables: [public.theirs]\n"
    )
    try:
        assert main(["-c", str(file), "apply", "shop"]) == 1
        shown = capsys.readouterr().out
        assert f'GRANT SELECT ON TABLE "public"."theirs" TO "{role}";' in shown
        assert "the first statement is for somebody else to run" in shown
        assert database.rows("SELECT tablename FROM pg_publication_tables WHERE pubname = 'pub'") == [("theirs",)]
        _run(database, (f'GRANT SELECT ON TABLE theirs TO "{role}"',))
        assert main(["-c", str(file), "plan", "shop"]) == 0
        assert "nothing to do" in capsys.readouterr().out
    finally:
        database.execute("DROP PUBLICATION pub", SQL('DROP OWNED BY "{}"').format(SQL(role)))
