"""Tables that the configuration names by a pattern: which they are, how one that is made later comes in, what Dagster shows.

How patterns are written is tested in tests/core/config/test_config_tables.py.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from lakeproof.cli.status_page import page
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.check import CheckReport, check_source
from lakeproof.commands.publish import apply, plan
from lakeproof.commands.status import status
from lakeproof.config.model import Config
from lakeproof.config.table_names import TablePattern, parse_selected
from lakeproof.errors import SourceError
from lakeproof.names import TableName
from lakeproof.postgres.checks.findings import Severity
from orchestration.build import build
from tests.support.ingest.fix_drain import SOURCE, Drained
from tests.support.ingest.snapshot_rows import copied_and_landed
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres


@pytest.fixture
def erp(database: Database) -> Database:
    """A schema with one of each kind of relation, and another one beside it."""
    database.execute(
        "CREATE SCHEMA erp",
        "CREATE SCHEMA parts",
        "CREATE TABLE erp.orders (id int PRIMARY KEY, v text)",
        "CREATE TABLE erp.journal (v text)",
        "CREATE TABLE erp.tmp_1 (id int PRIMARY KEY)",
        "CREATE UNLOGGED TABLE erp.cache (id int PRIMARY KEY)",
        "CREATE VIEW erp.v AS SELECT 1 AS one",
        "CREATE TABLE erp.days (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE erp.days_1 PARTITION OF erp.days FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id)",
        "CREATE TABLE erp.days_1_1 PARTITION OF erp.days_1 DEFAULT",
        "CREATE TABLE parts.days_2 PARTITION OF erp.days DEFAULT",
        "CREATE TABLE parts.alone (id int PRIMARY KEY)",
    )
    return database


def _config(database: Database, lake: Path, tables: str, exclude: str = "") -> Config:
    listed = [parse_selected(text) for text in tables.split()]
    source = database.source(
        publication=SOURCE,
        tables=tuple(entry for entry in listed if isinstance(entry, TableName)),
        patterns=tuple(entry for entry in listed if isinstance(entry, TablePattern)),
        exclude=tuple(parse_selected(text) for text in exclude.split()),
    )
    return Config(path=lake / "lakeproof.yaml", lake=str(lake), sources={SOURCE: source})


def _found(report: CheckReport, severity: Severity) -> list[str]:
    return [str(f) for f in report.findings if f.severity is severity and f.thing.startswith(("table ", "schema "))]


def test_a_pattern_is_published_as_the_tables_that_it_matches(
    erp: Database, tmp_path: Path, server_version: int
) -> None:
    """Partitions go with their root, relations without changes are left out and listed; no identity means no updates."""
    config = _config(erp, tmp_path, "erp.*", "erp.tmp_*")
    planned = plan(config, SOURCE)
    # Generated columns are published from 18 on.
    parameters = "publish_via_partition_root = true"
    if server_version >= 18:
        parameters += ", publish_generated_columns = stored"
    follows = f"'lakeproof: what is in it follows the configuration of source {SOURCE}'"
    assert planned.statements == (
        f'CREATE PUBLICATION "shop" FOR TABLE ONLY "erp"."days", ONLY "erp"."orders" WITH ({parameters})',
        f'COMMENT ON PUBLICATION "shop" IS {follows}',
        (
            'CREATE PUBLICATION "shop_inserts" FOR TABLE ONLY "erp"."journal" '
            f"WITH (publish = 'insert, truncate', {parameters})"
        ),
        f'COMMENT ON PUBLICATION "shop_inserts" IS {follows}',
    )
    apply(config, SOURCE, planned)
    assert plan(config, SOURCE).empty
    report = check_source(config, SOURCE)
    assert [str(table.name) for table in report.tables] == ["erp.days", "erp.journal", "erp.orders"]
    assert not report.refused
    (cache,) = [line for line in _found(report, Severity.NOTE) if "pattern" in line]
    assert cache.startswith("table erp.cache: it is unlogged")


def test_a_partition_whose_root_is_not_selected_is_a_table(erp: Database, tmp_path: Path) -> None:
    """No other table would have the partition's rows; below it nothing is published twice."""
    planned = plan(_config(erp, tmp_path, "parts.*"), SOURCE)
    assert 'ONLY "parts"."alone", ONLY "parts"."days_2"' in planned.statements[0]
    planned = plan(_config(erp, tmp_path, "erp.days_* parts.alone"), SOURCE)
    assert 'ONLY "parts"."alone", ONLY "erp"."days_1" WITH' in planned.statements[0]


def test_a_pattern_that_matches_nothing_is_refused(erp: Database, tmp_path: Path) -> None:
    """Plan refuses before it publishes, and check has a finding; a pattern whose only match is also named is fine."""
    config = _config(erp, tmp_path, "parts.alone erp.ordres*")
    with pytest.raises(SourceError, match=r"tables erp\.ordres\*: no table matches"):
        plan(config, SOURCE)
    assert any("erp.ordres*: no table matches" in str(f) for f in check_source(config, SOURCE).findings)
    assert plan(_config(erp, tmp_path, "parts.alone parts.al*"), SOURCE).statements


def test_check_names_the_tables_that_nobody_selects(erp: Database, tmp_path: Path) -> None:
    """Check covers the schemas in the configuration, without excluded tables, and says how to take all of them."""
    (message,) = _found(check_source(_config(erp, tmp_path, "erp.orders"), SOURCE), Severity.NOTE)
    reason, _, remedy = message.partition("; ")
    assert reason == "schema erp: not selected and not published: erp.days, erp.journal, erp.tmp_1"
    assert remedy == "to follow them, name them in `tables`, or all of them by erp.*"
    notes = _found(check_source(_config(erp, tmp_path, "erp.o* erp.d*", "erp.days erp.tmp_*"), SOURCE), Severity.NOTE)
    assert [line.partition(";")[0] for line in notes] == ["schema erp: not selected and not published: erp.journal"]


def test_a_table_that_is_made_later_waits_for_apply_and_its_copy(
    erp: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`check` and `status` name it until it is published; Dagster shows it when the location is loaded after that."""
    shop = Drained(erp, tmp_path / "lake")
    config = _config(erp, shop.lake, "erp.*", "erp.tmp_*")

    def shown() -> set[str]:
        graph = build(config).resolve_asset_graph()
        return {key.path[-1] for key in graph.get_all_asset_keys() if key.path[0] == "current"}

    with caplog.at_level(logging.WARNING, "lakeproof.dagster"):
        assert shown() == set()
    assert "which tables are published is not known in the lake yet" in caplog.text
    apply(config, SOURCE, plan(config, SOURCE))
    bootstrap(config, SOURCE)
    assert shown() == {"orders", "journal", "days"}
    erp.execute("CREATE TABLE erp.coupons (id int PRIMARY KEY, v text)", "INSERT INTO erp.coupons VALUES (1, 'early')")
    coupons = TableName("erp", "coupons")
    (warning,) = _found(check_source(config, SOURCE), Severity.WARNING)
    assert warning.startswith("table erp.coupons: it matches erp.* and is not published")
    assert status(config).sources[SOURCE].unpublished == (coupons,)
    assert "erp.coupons: matched by a pattern but not published; run `lakeproof apply shop`" in page(status(config))
    planned = plan(config, SOURCE)
    assert planned.statements == ('ALTER PUBLICATION "shop" ADD TABLE ONLY "erp"."coupons"',)
    apply(config, SOURCE, planned)
    assert status(config).sources[SOURCE].unpublished == ()
    shop.drain()
    bootstrap(config, SOURCE, [coupons])
    erp.execute("INSERT INTO erp.coupons VALUES (2, 'late')", "UPDATE erp.coupons SET v = 'x' WHERE id = 1")
    shop.drain()
    assert copied_and_landed(shop, coupons) == shop.source_rows(coupons)
    assert shown() == {"orders", "journal", "days", "coupons"}
