"""The rows, columns, operations and schemas of the configuration are those that `plan` shows and `apply` makes.

That a lake follows such a publication is in test_part_of_a_table.py; what makes a table unfit is in test_source_checks.py.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from lakeproof.cli.main import main
from lakeproof.commands.check import check_source
from lakeproof.commands.publish import PublicationPlan, apply, plan
from lakeproof.config.load import load
from lakeproof.config.mistakes import ConfigFileError
from lakeproof.config.model import Config
from lakeproof.config.table_names import parse_table
from lakeproof.errors import SourceError
from lakeproof.names import TableName
from tests.support.servers.fix_postgres import Database

_since_15 = pytest.mark.since(15)


@pytest.fixture
def shop(database: Database) -> Database:
    """A database with two schemas."""
    database.execute(
        "CREATE SCHEMA erp",
        "CREATE TABLE orders (id int PRIMARY KEY, country varchar(2), note text)",
        "CREATE TABLE lines (order_id int, no int, qty int, PRIMARY KEY (order_id, no))",
        "CREATE TABLE visits (at text)",
        "CREATE TABLE erp.parts (id int PRIMARY KEY)",
        "CREATE TABLE erp.bins (id int PRIMARY KEY)",
    )
    return database


def _config(database: Database, folder: Path, source: str) -> Config:
    """Return the configuration whose source has these lines."""
    file = folder / "lakeproof.yaml"
    head = f"lake: {folder}/lake\nsources:\n  shop:\n    dsn: {{env: SHOP_DSN}}\n    publication: pub\n"
    lines = [f"    {line}" for line in dedent(source).strip().splitlines()]
    file.write_text(head + f"    slot: {database.name}\n" + "\n".join(lines) + "\n")
    return load(file)


@pytest.fixture(autouse=True)
def _dsn(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_DSN", database.dsn)


def _applied(config: Config) -> PublicationPlan:
    """Apply what `plan` shows, and return it; a second plan is empty."""
    planned = plan(config, "shop")
    apply(config, "shop", planned)
    assert plan(config, "shop").statements == ()
    return planned


def _published(database: Database) -> dict[str, tuple[list[str], str | None]]:
    query = """SELECT schemaname || '.' || tablename, attnames::text[], rowfilter FROM pg_publication_tables
               WHERE pubname = 'pub' ORDER BY 1"""
    return {name: (columns, condition) for name, columns, condition in database.rows(query)}


def _names(*names: str) -> tuple[TableName, ...]:
    return tuple(map(parse_table, names))


# PostgreSQL reads its own words for this condition as other words.
_LIST = "country IN ('DE', 'FR') OR id > 1000"
_PARTS = f"""
tables: [public.orders, public.lines]
table:
  public.orders: {{rows: "{_LIST}", without: [note]}}
"""


@_since_15
def test_rows_and_columns_are_published_as_configured_and_a_second_plan_is_empty(
    shop: Database, tmp_path: Path
) -> None:
    """PostgreSQL spells the condition in its own way; another condition or list is a change of that table alone."""
    shop.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (id, country)")
    _applied(_config(shop, tmp_path, _PARTS))
    published = _published(shop)
    assert published["public.orders"][0] == ["id", "country"]
    assert "'FR'" in (published["public.orders"][1] or "")
    assert published["public.lines"] == (["order_id", "no", "qty"], None)
    shop.execute("ALTER TABLE orders ADD later int")
    assert _applied(_config(shop, tmp_path, _PARTS)).added == _names("public.orders")
    other = _PARTS.replace(_LIST, "id > 5 -- later ones")
    changed = _applied(_config(shop, tmp_path, other))
    assert changed.statements[0] == 'ALTER PUBLICATION "pub" DROP TABLE ONLY "public"."orders"'
    assert changed.added == changed.removed == _names("public.orders")
    assert _published(shop)["public.orders"] == (["id", "country", "later"], "(id > 5)")
    whole = _applied(_config(shop, tmp_path, "tables: [public.orders, public.lines]"))
    assert whole.added == _names("public.orders")
    assert _published(shop)["public.orders"] == (["id", "country", "note", "later"], None)


@_since_15
@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("rows: country = 'DE'", "its row filter reads country, which its identity does not have"),
        ("columns: [country]", "not its identity's columns id"),
        ("rows: id = nothing", 'refuses the condition in its `rows`: column "nothing" does not exist'),
        ("rows: id", "must be type boolean"),
        ("rows: 'id > 0); SELECT (1'", "refuses the condition in its `rows`"),
        ("columns: [id, countri]", "no column countri that can be published; did you mean country?"),
    ],
)
def test_what_can_not_be_published_is_refused_before_anything_changes(
    shop: Database, tmp_path: Path, part: str, reason: str
) -> None:
    """The identity must be in the list, and updates can be filtered by its columns alone."""
    config = _config(shop, tmp_path, f"tables: [public.orders]\ntable:\n  public.orders: {{{part}}}")
    with pytest.raises(SourceError) as refused:
        plan(config, "shop")
    assert reason in str(refused.value)
    assert shop.rows("SELECT pubname FROM pg_publication") == []


@_since_15
def test_operations_are_those_of_the_configuration(shop: Database, tmp_path: Path) -> None:
    """With inserts alone a table needs no identity; without `publish` the operations stay as they are."""
    query = "SELECT pubname, pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication ORDER BY 1"
    tables = "tables: [public.orders, public.visits]"
    planned = _applied(_config(shop, tmp_path, f"{tables}\npublish: [insert]"))
    assert planned.statements[0].startswith(
        'CREATE PUBLICATION "pub" FOR TABLE ONLY "public"."orders", ONLY "public"."visits"'
    )
    only_inserts = [("pub", True, False, False, False), ("pub_inserts", True, False, False, False)]
    assert shop.rows(query) == only_inserts
    config = _config(shop, tmp_path, f"{tables}\npublish: [delete, insert, update]")
    moved = _applied(config)
    assert {str(table) for table in moved.added} == {"public.visits"}
    assert shop.rows(query) == [("pub", True, True, True, False), ("pub_inserts", True, False, False, False)]
    assert [str(f) for f in check_source(config, "shop").findings if "leaves out truncate" in f.reason]
    shop.execute("UPDATE visits SET at = ''", "DELETE FROM visits")
    assert plan(_config(shop, tmp_path, tables), "shop").statements == ()


@_since_15
def test_a_table_that_the_configuration_does_not_select_is_taken_out(shop: Database, tmp_path: Path) -> None:
    """In both publications that `plan` made, and with all tables but some; never in one that somebody else made."""
    _applied(_config(shop, tmp_path, "tables: ['*.*']\nexclude: [erp.bins]"))
    assert _published(shop).keys() == {"public.orders", "public.lines", "erp.parts"}
    planned = _applied(_config(shop, tmp_path, "tables: ['*.*']\nexclude: ['*.l*', public.visits]"))
    assert {str(table) for table in planned.removed} == {"public.lines", "public.visits"}
    assert any("taken out" in note and "public.lines, public.visits" in note for note in planned.notes)
    assert _published(shop).keys() == {"public.orders", "erp.bins", "erp.parts"}
    shop.execute("DROP PUBLICATION pub, pub_inserts", "CREATE PUBLICATION pub FOR TABLE lines, orders (id)")
    config = _config(
        shop, tmp_path, "tables: [public.orders]\npublish: [insert]\ntable: {public.orders: {rows: id > 1}}"
    )
    left = plan(config, "shop")
    assert left.statements == ()
    assert any("the rows or columns of public.orders; its operations" in note for note in left.notes)
    assert any("published, though not configured, and left so: public.lines" in note for note in left.notes)
    shop.execute("COMMENT ON PUBLICATION pub IS 'lakeproof: taken over'")
    assert {str(table) for table in _applied(config).removed} == {"public.lines", "public.orders"}


@_since_15
def test_a_schema_is_published_whole_unless_one_of_its_tables_can_not_be(shop: Database, tmp_path: Path) -> None:
    """A table made later is published at once; a role that is no superuser hears that it takes one."""
    config = _config(shop, tmp_path, "tables: [public.orders]\nschemas: [erp]")
    shop.execute("CREATE TABLE erp.bag (v text)")
    with pytest.raises(SourceError, match=r"erp\.bag.*has no primary key.*instead of `schemas`"):
        plan(config, "shop")
    shop.execute("DROP TABLE erp.bag")
    assert 'FOR TABLES IN SCHEMA "erp", TABLE ONLY "public"."orders"' in _applied(config).statements[0]
    shop.execute("CREATE TABLE erp.later (id int PRIMARY KEY)")
    assert {"erp.later", "erp.parts", "public.orders"} < _published(shop).keys()
    assert plan(config, "shop").statements == ()
    planned = _applied(_config(shop, tmp_path, "tables: [public.orders, erp.parts]"))
    assert planned.statements[0] == 'ALTER PUBLICATION "pub" DROP TABLES IN SCHEMA "erp"'
    assert _published(shop).keys() == {"public.orders", "erp.parts"}


@_since_15
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("tables: [public.orders, erp.*]", "tables: [public.orders]\nschemas: [erp]"),
        ("tables: [public.orders, erp.bag]", "tables: [public.orders]\nschemas: [erp]"),
        ("schemas: [erp]\npublish: [insert]", "schemas: [erp]\npublish: [insert, update, delete, truncate]"),
    ],
    ids=["pattern", "name", "operations"],
)
def test_a_table_without_an_identity_is_never_published_with_its_updates(
    shop: Database, tmp_path: Path, before: str, after: str
) -> None:
    """However its schema came to be published whole: the application's UPDATE would fail."""
    shop.execute("CREATE TABLE erp.bag (v text)", "INSERT INTO erp.bag VALUES ('x')")
    _applied(_config(shop, tmp_path, before))
    with pytest.raises(SourceError, match=r"erp\.bag.*has no primary key.*instead of `schemas`"):
        plan(_config(shop, tmp_path, after), "shop")
    shop.execute("UPDATE erp.bag SET v = 'y'", "ALTER TABLE erp.bag REPLICA IDENTITY FULL")
    planned = _applied(_config(shop, tmp_path, after))
    assert not any("as left" in note for note in planned.notes)
    shop.execute("UPDATE erp.bag SET v = 'z'")


@pytest.mark.parametrize(
    ("source", "mistake"),
    [
        ("publish: [update]", "publish: must have insert"),
        ("publish: [insert, upsert]", "publish[1]: must be"),
        ("table: {a.b: {columns: [x], without: [y]}}", "has both columns and without"),
        ("table: {a.b: {rows: ' '}}", "must be a condition in SQL"),
        ("schemas: [erp]\ntable: {a.b: {columns: [x]}}\ntables: [a.b]", "column list, which PostgreSQL refuses"),
        ("schemas: [erp]\ntable: {erp.b: {rows: x}}", "rows, which PostgreSQL ignores for a table of schema erp"),
        ("schemas: [erp]\nexclude: [erp.tmp]", "can't leave anything out of schema erp"),
        ("schemas: [pg_catalog]", "is not the name of a schema"),
        ("tables: ['\"*\".x*']", "can't be in a pattern"),
    ],
)
def test_a_contradiction_is_a_mistake_of_the_file(shop: Database, tmp_path: Path, source: str, mistake: str) -> None:
    """PostgreSQL would refuse it, or ignore it; it is refused when the file is read."""
    with pytest.raises(ConfigFileError) as refused:
        _config(shop, tmp_path, source)
    assert mistake in str(refused.value)


@pytest.mark.parametrize(
    "source", ["schemas: [erp]", 'tables: [public.orders]\ntable: {public.orders: {rows: "id > 1"}}']
)
def test_postgresql_14_is_named_as_what_can_not(
    shop: Database, tmp_path: Path, source: str, server_version: int
) -> None:
    """One error with the version and the remedy, of `plan` and of `check`."""
    if server_version > 14:
        pytest.skip("it can")
    config = _config(shop, tmp_path, source)
    with pytest.raises(SourceError, match=r"server: it is PostgreSQL 14, which can't publish .*; upgrade it, or take"):
        plan(config, "shop")
    assert any("PostgreSQL 14" in f.reason for f in check_source(config, "shop").findings)


@_since_15
@pytest.mark.parametrize("space", ["\u3000", "\u00a0"])
def test_a_printed_plan_has_each_character_of_a_condition(
    shop: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str], space: str
) -> None:
    """Run by psql, it publishes the rows that `apply` would."""
    shop.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    config = _config(
        shop, tmp_path, f"tables: [public.orders]\ntable: {{public.orders: {{rows: \"note <> '東{space}'\"}}}}"
    )
    main(["-c", str(config.path), "plan", "shop"])
    shop.execute(*[line for line in capsys.readouterr().out.splitlines() if not line.startswith("--")])
    assert f"'東{space}'" in (_published(shop)["public.orders"][1] or "")
    assert plan(config, "shop").empty


@_since_15
@pytest.mark.parametrize("character", ["\\n", "\\t", "\\u202e"])
def test_a_plan_that_can_not_be_printed_is_no_statement(
    shop: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str], character: str
) -> None:
    """Another character in its place would publish other rows: `apply` alone runs it."""
    shop.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    rows = f"\"note <> 'a{character}'\""
    config = _config(shop, tmp_path, f"tables: [public.orders]\ntable: {{public.orders: {{rows: {rows}}}}}")
    main(["-c", str(config.path), "plan", "shop"])
    shown = capsys.readouterr().out
    assert all(line.startswith("--") for line in shown.splitlines())
    assert "`lakeproof apply` runs" in shown
    _applied(config)
    text = character.encode().decode("unicode_escape")
    assert f"'a{text}'" in (_published(shop)["public.orders"][1] or "")
