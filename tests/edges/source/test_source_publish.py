"""`apply` runs what `plan` shows, and teardown takes away what bootstrap and apply have made.

What makes a table unfit to be published is tested in test_source_checks.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.check import check_source
from lakeproof.commands.publish import apply, plan
from lakeproof.commands.teardown import plan_teardown, teardown
from lakeproof.config.model import Config
from lakeproof.errors import ConfigError, SourceError, TransientError
from lakeproof.names import TableName
from lakeproof.postgres.catalog.published import publications_of, read_tables
from lakeproof.postgres.checks.findings import Severity
from lakeproof.postgres.connections.connect import connect
from lakeproof.postgres.replication_stream import ReplicationStream
from tests.support.servers.fix_postgres import Database

KEYED, BAG, ODD = TableName("public", "keyed"), TableName("public", "history"), TableName("public", 'o"dd {x}')


def _config(database: Database, lake: Path, *tables: TableName, **settings: object) -> Config:
    source = database.source(tables=tables, **settings)
    return Config(path=lake, lake=str(lake), sources={"shop": source})


def _tables(database: Database) -> None:
    database.execute(
        "CREATE TABLE keyed (id int PRIMARY KEY)",
        "CREATE TABLE history (v text)",
        'CREATE TABLE "o""dd {x}" (id int PRIMARY KEY)',
        "CREATE TABLE root (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE leaf PARTITION OF root DEFAULT",
    )


def test_a_plan_changes_nothing_and_apply_does_what_it_says(
    database: Database, tmp_path: Path, server_version: int
) -> None:
    """Keyed tables go into the publication, others into the one for inserts; then nothing is left to do."""
    _tables(database)
    config = _config(database, tmp_path, KEYED, ODD, BAG, TableName("public", "root"))
    planned = plan(config, "shop")
    assert database.rows("SELECT pubname FROM pg_publication") == []
    stored = ", publish_generated_columns = stored" if server_version >= 18 else ""
    follows = "'lakeproof: what is in it follows the configuration of source shop'"
    assert planned.statements == (
        (
            'CREATE PUBLICATION "pub" FOR TABLE ONLY "public"."keyed", ONLY "public"."o""dd {x}", ONLY "public"."root" '
            f"WITH (publish_via_partition_root = true{stored})"
        ),
        f'COMMENT ON PUBLICATION "pub" IS {follows}',
        (
            'CREATE PUBLICATION "pub_inserts" FOR TABLE ONLY "public"."history" '
            f"WITH (publish = 'insert, truncate', publish_via_partition_root = true{stored})"
        ),
        f'COMMENT ON PUBLICATION "pub_inserts" IS {follows}',
    )
    assert any("history has no replica identity" in note for note in planned.notes)
    assert any("made by `lakeproof bootstrap`" in note for note in planned.notes)
    apply(config, "shop", planned)
    assert plan(config, "shop").empty
    with connect(database.secret) as conn:
        source = config.sources["shop"]
        assert publications_of(conn, source) == ["pub", "pub_inserts"]
        actual = read_tables(conn, source)
    assert {name: sorted(table.actions) for name, table in actual.items()} == {
        KEYED: ["delete", "insert", "truncate", "update"],
        BAG: ["insert", "truncate"],
        ODD: ["delete", "insert", "truncate", "update"],
        TableName("public", "root"): ["delete", "insert", "truncate", "update"],
    }
    # The application is not disturbed.
    database.execute("INSERT INTO history VALUES ('a')", "UPDATE history SET v = 'b'", "DELETE FROM history")


def test_a_table_added_later_is_added_to_the_publication_that_fits(database: Database, tmp_path: Path) -> None:
    """ALTER … ADD TABLE, and a note about tables that are published without being configured."""
    _tables(database)
    database.execute("CREATE PUBLICATION pub FOR TABLE keyed")
    planned = plan(_config(database, tmp_path, ODD), "shop")
    assert planned.statements == ('ALTER PUBLICATION "pub" ADD TABLE ONLY "public"."o""dd {x}"',)
    assert any("public.keyed" in note for note in planned.notes)


def test_bags_alone_still_make_the_publication_of_that_name(database: Database, tmp_path: Path) -> None:
    """The configured name then always exists."""
    _tables(database)
    config = _config(database, tmp_path, BAG)
    apply(config, "shop", plan(config, "shop"))
    with connect(database.secret) as conn:
        assert publications_of(conn, config.sources["shop"]) == ["pub", "pub_inserts"]


def test_a_plan_that_names_what_is_no_table_is_refused_whole(database: Database, tmp_path: Path) -> None:
    """A mistake of the configuration: each is named in one error, and nothing is published."""
    _tables(database)
    database.execute("CREATE VIEW v AS SELECT 1")
    with pytest.raises(SourceError, match=r"public\.no.*public\.v|public\.v.*public\.no"):
        plan(_config(database, tmp_path, KEYED, TableName("public", "no"), TableName("public", "v")), "shop")


def test_a_table_published_with_updates_but_without_identity_is_refused(database: Database, tmp_path: Path) -> None:
    """The remedy names the statement that takes it out; FOR ALL TABLES is warned of."""
    _tables(database)
    database.execute("CREATE PUBLICATION pub FOR TABLE history")
    with pytest.raises(SourceError, match=r"ALTER PUBLICATION pub DROP TABLE ONLY public\.history"):
        plan(_config(database, tmp_path, BAG), "shop")
    database.execute("DROP PUBLICATION pub", "DROP TABLE history", "CREATE PUBLICATION everything FOR ALL TABLES")
    planned = plan(_config(database, tmp_path, KEYED), "shop")
    assert any("FOR ALL TABLES (everything)" in note for note in planned.notes)


def test_a_plan_without_tables_or_with_too_long_a_name_is_a_mistake(database: Database, tmp_path: Path) -> None:
    """The configuration and the publication name no table; a name that would be truncated is not used."""
    _tables(database)
    with pytest.raises(ConfigError, match="names no tables"):
        plan(_config(database, tmp_path), "shop")
    with pytest.raises(ConfigError, match="shorter"):
        plan(_config(database, tmp_path, BAG, publication="p" * 60), "shop")


def test_apply_is_all_or_nothing_and_says_who_may_not(database: Database, tmp_path: Path) -> None:
    """A role that owns nothing is refused with the reason, and no publication is left behind."""
    _tables(database)
    config = _config(database, tmp_path, KEYED, BAG)
    planned = plan(config, "shop")
    weak = _config(database, tmp_path, KEYED, BAG, dsn=SecretStr(database.role("LOGIN REPLICATION")))
    with pytest.raises(SourceError, match="42501"):
        apply(weak, "shop", planned)
    with pytest.raises(SourceError) as refused:
        apply(weak, "shop", plan(weak, "shop"))
    assert refused.value.reason.endswith(
        f"it has not CREATE on database {database.name}, nor the ownership of public.history, public.keyed"
    )
    assert "lakeproof plan shop | psql" in refused.value.remedy
    noted = [str(f) for f in check_source(weak, "shop").findings if f.severity is Severity.NOTE]
    assert any("it can't run what `lakeproof apply` runs" in text for text in noted)
    database.execute("CREATE PUBLICATION pub_inserts")
    with pytest.raises(SourceError, match="42710"):
        apply(config, "shop", planned)
    assert database.rows("SELECT pubname FROM pg_publication") == [("pub_inserts",)]


def test_teardown_drops_slot_and_publications_and_leaves_the_lake(database: Database, tmp_path: Path) -> None:
    """The result lists the dropped objects; a second run has nothing to do."""
    _tables(database)
    config = _config(database, tmp_path, KEYED, BAG)
    apply(config, "shop", plan(config, "shop"))
    bootstrap(config, "shop")
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    report = teardown(config, "shop")
    assert (report.slot, report.publications) == (database.name, ("pub", "pub_inserts"))
    assert database.slots() == set()
    assert database.rows("SELECT pubname FROM pg_publication") == []
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before
    again = teardown(config, "shop")
    assert (again.slot, again.publications) == (None, ())


def test_a_publication_of_somebody_else_stays(database: Database, tmp_path: Path) -> None:
    """It may have other readers. The slot goes, and the result names the publication with the SQL that drops it."""
    _tables(database)
    database.execute("CREATE PUBLICATION pub FOR TABLE keyed")
    config = _config(database, tmp_path, KEYED)
    bootstrap(config, "shop")
    would = plan_teardown(config, "shop").would
    assert would.startswith(f"drop slot {database.name}; publication pub stays, since lakeproof did not make it")
    report = teardown(config, "shop")
    assert (report.slot, report.publications, report.kept) == (database.name, (), ("pub",))
    assert database.slots() == set()
    assert database.rows("SELECT pubname FROM pg_publication") == [("pub",)]


def test_a_teardown_by_who_may_not_drop_the_publication_drops_the_slot(database: Database, tmp_path: Path) -> None:
    """A slot keeps WAL, and a publication nothing; the owner's SQL is named."""
    _tables(database)
    owners = _config(database, tmp_path, KEYED)
    apply(owners, "shop", plan(owners, "shop"))
    database.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO public")
    weak = _config(database, tmp_path, KEYED, dsn=SecretStr(database.role("LOGIN REPLICATION")))
    bootstrap(weak, "shop")
    planned = plan_teardown(weak, "shop")
    assert not planned.is_whole
    assert planned.would.startswith(f"drop slot {database.name}; publication pub stays for its owner to drop")
    with pytest.raises(SourceError) as refused:
        teardown(weak, "shop")
    assert "does not own it, so it may not drop it; the slot is gone" in refused.value.reason
    assert refused.value.remedy == "let the owner run DROP PUBLICATION pub, pub_inserts"
    assert database.slots() == set()
    database.execute("DROP PUBLICATION pub, pub_inserts")
    assert teardown(weak, "shop").slot is None


def test_a_mistyped_table_gets_a_suggestion(database: Database, tmp_path: Path) -> None:
    """Names in the configuration and on the command line are covered."""
    _tables(database)
    with pytest.raises(SourceError, match=r"did you mean public\.keyed\?"):
        plan(_config(database, tmp_path, TableName("public", "keyd")), "shop")
    config = _config(database, tmp_path, KEYED)
    apply(config, "shop", plan(config, "shop"))
    with pytest.raises(SourceError, match=r"did you mean public\.keyed\?"):
        bootstrap(config, "shop", [TableName("public", "keyde")])
    assert database.slots() == set()


def test_teardown_refuses_a_slot_in_use_unless_asked_and_a_foreign_slot(database: Database, tmp_path: Path) -> None:
    """A running drain keeps its slot; a slot of another plugin is never dropped."""
    _tables(database)
    config = _config(database, tmp_path, KEYED)
    apply(config, "shop", plan(config, "shop"))
    point = bootstrap(config, "shop").consistent_point
    with ReplicationStream.open(database.secret, database.name, ["pub"], point):
        with pytest.raises(TransientError, match="in use"):
            teardown(config, "shop")
        assert database.slots() == {database.name}
        assert teardown(config, "shop", end_drain=True).slot == database.name
    database.execute("SELECT pg_create_logical_replication_slot('other_plugin', 'test_decoding')")
    with pytest.raises(SourceError, match="test_decoding"):
        teardown(_config(database, tmp_path, KEYED, slot="other_plugin"), "shop")
    assert database.slots() == {"other_plugin"}
