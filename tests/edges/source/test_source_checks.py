"""Each thing that can be wrong with a source is found, named with its reason and remedy, and nothing is changed.

Errors of connecting are in test_source_server.py; what `plan` refuses in test_source_publish.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from pydantic import SecretStr
from typing_extensions import LiteralString

from demo.server import free_port
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.check import CheckReport, check_source
from lakeproof.config.load import load
from lakeproof.config.model import Config, DrainConfig, TableConfig
from lakeproof.errors import ConfigError, SourceError
from lakeproof.names import TableName
from lakeproof.postgres.catalog.published import read_tables
from lakeproof.postgres.checks.findings import Severity
from lakeproof.postgres.replication_stream import ReplicationStream, StreamOptions
from lakeproof.snapshot.incarnation import SourceDoc
from tests.support.servers.fix_postgres import Database, MakeServer, new_database
from tests.support.servers.slots import create_slot

T = TableName("public", "t")
_GOOD: tuple[LiteralString, ...] = ("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE PUBLICATION pub FOR TABLE t")


def _check(database: Database, lake: Path, **settings: object) -> CheckReport:
    source = database.source(**settings)
    return check_source(Config(path=lake, lake=str(lake), sources={"shop": source}), "shop")


def _found(report: CheckReport, severity: Severity = Severity.ERROR) -> list[str]:
    return [str(finding) for finding in report.findings if finding.severity is severity]


def _only(report: CheckReport, *words: str) -> None:
    """Assert that there is exactly one error, with these words in it."""
    errors = _found(report)
    assert len(errors) == 1, errors
    for word in words:
        assert word in errors[0]
    assert report.refused


def test_a_source_in_order_has_no_error_and_says_what_would_be_kept(database: Database, tmp_path: Path) -> None:
    """A keyed table, its key and its columns; the slot that bootstrap will make is a note."""
    database.execute(*_GOOD)
    report = _check(database, tmp_path)
    assert not report.refused
    (warning,) = _found(report, Severity.WARNING)
    assert warning.startswith("server: max_slot_wal_keep_size is unlimited"), "as the test's server has it"
    assert [(t.name, t.key, t.columns, t.identity) for t in report.tables] == [(T, ("id",), 2, "default")]
    assert report.publications == ("pub",)
    assert any("does not exist yet" in text for text in _found(report, Severity.NOTE))
    assert database.slots() == set()
    assert list(tmp_path.iterdir()) == []


def test_every_fault_is_gathered_at_once(database: Database, tmp_path: Path) -> None:
    """Role, slot, publication and tables are all reported, not the first alone."""
    database.execute(
        "CREATE TABLE bag (v text)", "CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE bag"
    )
    database.execute(SQL("SELECT pg_create_logical_replication_slot({}, 'test_decoding')").format(database.name))
    role = SecretStr(database.role("LOGIN"))
    texts = " ".join(_found(_check(database, tmp_path, dsn=role, tables=(T, TableName("public", "nothing")))))
    for words in ("REPLICATION", "test_decoding", "public.nothing: it does not exist", "public.t: it is not in"):
        assert words in texts
    for words in ("may not read", "no primary key"):
        assert words in texts


def test_a_server_that_can_not_be_reached_is_a_finding(database: Database, tmp_path: Path) -> None:
    """Check always gives a report, without a password in it."""
    dsn = psycopg.conninfo.make_conninfo(database.dsn, port=str(free_port()), password="s3cret")
    report = _check(database, tmp_path, dsn=SecretStr(dsn))
    _only(report, "onnection refused")
    assert report.server is None
    assert "s3cret" not in repr(report)


def test_a_role_needs_replication_and_select(database: Database, tmp_path: Path) -> None:
    """Each missing right is named with the statement that grants it; with them there is no error."""
    database.execute(*_GOOD, "CREATE SCHEMA inner_one", "CREATE TABLE inner_one.i (id int PRIMARY KEY)")
    database.execute("ALTER PUBLICATION pub ADD TABLE inner_one.i")
    dsn = database.role("LOGIN")
    report = _check(database, tmp_path, dsn=SecretStr(dsn))
    name = database.roles[0]
    texts = _found(report)
    assert [text for text in texts if f"ALTER ROLE {name} REPLICATION" in text]
    assert [text for text in texts if f"GRANT SELECT ON public.t TO {name}" in text]
    assert [text for text in texts if f"GRANT USAGE ON SCHEMA inner_one TO {name}" in text]
    role = Identifier(name)
    database.execute(
        SQL("ALTER ROLE {} REPLICATION").format(role),
        SQL("GRANT USAGE ON SCHEMA inner_one TO {}").format(role),
        SQL("GRANT SELECT ON public.t, inner_one.i TO {}").format(role),
    )
    assert _found(_check(database, tmp_path, dsn=SecretStr(dsn))) == []
    config = Config(path=tmp_path, lake=str(tmp_path), sources={"shop": database.source(dsn=SecretStr(dsn))})
    assert set(bootstrap(config, "shop").tables) == {T, TableName("inner_one", "i")}


def test_row_level_security_that_would_hide_rows_is_an_error(database: Database, tmp_path: Path) -> None:
    """The copy would silently miss rows that the stream brings."""
    database.execute(*_GOOD, "ALTER TABLE t ENABLE ROW LEVEL SECURITY", "GRANT SELECT ON t TO public")
    report = _check(database, tmp_path, dsn=SecretStr(database.role("LOGIN REPLICATION")))
    _only(report, "row-level security", "BYPASSRLS")


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (["CREATE TABLE t (id int PRIMARY KEY)"], ("publication pub", "does not exist", "apply")),
        (["CREATE PUBLICATION pub"], ("publication pub", "no table")),
        (["CREATE TABLE t (v text)", "CREATE PUBLICATION pub FOR TABLE t"], ("public.t", "no primary key", "own fail")),
        (
            ["CREATE TABLE t (id int PRIMARY KEY DEFERRABLE)", "CREATE PUBLICATION pub FOR TABLE t"],
            ("public.t", "deferrable"),
        ),
        (
            ["CREATE TABLE t (id int PRIMARY KEY)", "ALTER TABLE t REPLICA IDENTITY NOTHING",
             "CREATE PUBLICATION pub FOR TABLE t"],
            ("public.t", "NOTHING"),
        ),
        (
            ["CREATE TABLE t ()", "CREATE PUBLICATION pub FOR TABLE t WITH (publish = 'insert')"],
            ("public.t", "no published column"),
        ),
        (
            ["CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE t WITH (publish = 'update')"],
            ("publication pub", "inserts"),
        ),
        (
            ["CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)", "CREATE TABLE t1 PARTITION OF t DEFAULT",
             "ALTER TABLE t REPLICA IDENTITY FULL",
             "CREATE PUBLICATION pub FOR TABLE t WITH (publish_via_partition_root)"],
            ("public.t", "public.t1"),
        ),
        (
            ["CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL) PARTITION BY RANGE (id)",
             "CREATE UNIQUE INDEX t_code ON t (code, id)", "ALTER TABLE t REPLICA IDENTITY USING INDEX t_code",
             "CREATE TABLE t1 PARTITION OF t DEFAULT", "ALTER TABLE t1 REPLICA IDENTITY USING INDEX t1_pkey",
             "CREATE PUBLICATION pub FOR TABLE t WITH (publish_via_partition_root)"],
            ("public.t", "public.t1", "index of (id)"),
        ),
        pytest.param(
            ["CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
             "CREATE TABLE t1 PARTITION OF t DEFAULT", "ALTER TABLE t1 REPLICA IDENTITY FULL",
             "CREATE PUBLICATION pub FOR TABLE t (id) WITH (publish_via_partition_root)"],
            ("public.t", "public.t1", "column list"),
            marks=pytest.mark.since(15),
        ),
        pytest.param(
            ["CREATE TABLE t (id int PRIMARY KEY, v text, w int NOT NULL) PARTITION BY RANGE (id)",
             "CREATE TABLE t1 PARTITION OF t DEFAULT", "CREATE UNIQUE INDEX wide ON t1 (id, w)",
             "ALTER TABLE t1 REPLICA IDENTITY USING INDEX wide",
             "CREATE PUBLICATION pub FOR TABLE t (id, v) WITH (publish_via_partition_root)"],
            ("public.t", "public.t1", "column list", "not have w"),
            marks=pytest.mark.since(15),
        ),
    ],
)  # fmt: skip
def test_each_fault_of_a_publication_or_table_is_named(
    database: Database, tmp_path: Path, statements: list[LiteralString], words: tuple[str, ...]
) -> None:
    """Each fault is an error with thing and reason; bootstrap refuses for the same reason, before it makes anything."""
    database.execute(*statements)
    lake = tmp_path / "lake"
    _only(_check(database, lake), *words)
    config = Config(path=tmp_path, lake=str(lake), sources={"shop": database.source()})
    with pytest.raises(SourceError) as refusal:
        bootstrap(config, "shop")
    assert all(word in str(refusal.value) for word in words)
    assert database.slots() == set()
    assert not lake.exists()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT 1", "does not exist"),
        ("CREATE VIEW x AS SELECT 1", "a view"),
        ("CREATE MATERIALIZED VIEW x AS SELECT 1", "a materialized view"),
        ("CREATE SEQUENCE x", "a sequence"),
        ("CREATE UNLOGGED TABLE x (id int PRIMARY KEY)", "unlogged"),
        ("CREATE TABLE x (id int PRIMARY KEY)", "not in publication pub"),
    ],
)
def test_a_configured_table_that_sends_nothing_is_named(
    database: Database, tmp_path: Path, statement: LiteralString, words: str
) -> None:
    """Missing, unpublished, or of a kind whose changes are not in the WAL."""
    database.execute(*_GOOD, statement)
    _only(_check(database, tmp_path, tables=(T, TableName("public", "x"))), "public.x", words)


def test_slots_that_can_not_serve_are_errors(database: Database, tmp_path: Path) -> None:
    """Another plugin, two_phase, another database, or a foreign reader; a drain of ours in the slot is only a note."""
    database.execute(*_GOOD)
    result: tuple[tuple[LiteralString, str], ...] = (
        ("SELECT pg_create_logical_replication_slot({}, 'test_decoding')", "test_decoding"),
        ("SELECT pg_create_logical_replication_slot({}, 'pgoutput', false, true)", "two_phase"),
    )
    for statement, words in result:
        database.execute(SQL(statement).format(database.name))
        _only(_check(database, tmp_path), f"slot {database.name}", words)
        database.execute(SQL("SELECT pg_drop_replication_slot({})").format(database.name))
    with new_database(database.server) as other:
        create_slot(other.secret, other.name)
        _only(_check(database, tmp_path, slot=other.name), "belongs to database", other.name)
    start = create_slot(database.secret, database.name)
    for name, error in (("someone", True), ("lakeproof drain shop", False)):
        with ReplicationStream.open(
            database.secret, database.name, ["pub"], start, StreamOptions(application_name=name, wait_s=5)
        ):
            report = _check(database, tmp_path)
        assert report.refused is error
        assert [f for f in report.findings if "in use by" in f.reason]


def test_things_worth_knowing_are_warnings_and_notes(database: Database, tmp_path: Path) -> None:
    """FOR ALL TABLES, missing actions, an unused key, bare numerics with the line that pins them, bags."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, amount numeric, fine numeric(8,2))",
        'CREATE TABLE f (v text, "V" text, _lp_op text, __lp_net text)',
        "ALTER TABLE f REPLICA IDENTITY FULL",
        "CREATE PUBLICATION pub FOR ALL TABLES WITH (publish = 'insert, update, delete')",
    )
    table = {T: TableConfig(key=("id",))}
    report = _check(database, tmp_path, table=table, drain=DrainConfig(status_interval_s=60))
    assert not report.refused
    warnings, notes = " ".join(_found(report, Severity.WARNING)), " ".join(_found(report, Severity.NOTE))
    for words in ("FOR ALL TABLES", "leaves out truncate", "the configured key is not used", "wal_sender_timeout"):
        assert words in warnings
    assert "table: {public.t: {numeric: {amount: [38, 10]}}}" in notes
    assert "multiset" in notes
    assert "V is #2#V, _lp_op is #3#_lp_op, __lp_net is #4#__lp_net" in notes
    assert "fine" not in notes


def test_the_line_for_bare_numerics_pins_them_all(database: Database, tmp_path: Path) -> None:
    """Domains, arrays and odd names too, beside a pin that is there; not what is text by wish or has a precision."""
    odd = TableName("public", 'odd "name".é')
    database.execute(
        "CREATE DOMAIN money_ AS numeric",
        """CREATE TABLE "odd ""name"".é" (id int PRIMARY KEY, amount numeric, "null" numeric[], "Ü: {x}, 'y" money_,
           many money_[], fine numeric(8,2), fines numeric(8,2)[], wide numeric(50,2), text_ numeric, done numeric,
           other jsonb)""",
        "CREATE PUBLICATION pub FOR ALL TABLES",
    )
    wish = TableConfig(as_text=("text_",), numeric={"done": (9, 3)})
    report = _check(database, tmp_path, table={odd: wish})
    [finding] = [f for f in report.findings if "without precision" in f.reason]
    line = finding.remedy[finding.remedy.index("table: ") :]
    file = tmp_path / "lakeproof.yaml"
    file.write_text(
        f"lake: ./lake\nsources:\n  shop:\n    dsn: host=localhost dbname=x\n    {line}\n", encoding="utf-8"
    )
    pinned = load(file).source("shop").table_config(odd).numeric
    names = ("amount", "null", "Ü: {x}, 'y", "many")
    assert pinned == {"done": (9, 3), **dict.fromkeys(names, (38, 10))}
    with database.connect() as conn:
        [table] = read_tables(conn, database.source(table={odd: TableConfig(numeric=pinned)})).values()
    kinds = {column.name: column.kind for column in table.version.columns}
    assert [kinds[name] for name in names] == ["numeric", "numeric[]", "numeric", "numeric[]"]
    again = _check(database, tmp_path, table={odd: TableConfig(as_text=("text_",), numeric=pinned)})
    assert not [f for f in again.findings if "without precision" in f.reason]


def test_a_wrong_pin_or_key_in_the_configuration_is_an_error(database: Database, tmp_path: Path) -> None:
    """The configuration is held against the catalog."""
    database.execute(*_GOOD, "ALTER TABLE t REPLICA IDENTITY FULL")
    _only(_check(database, tmp_path, table={T: TableConfig(numeric={"v": (10, 2)})}), "public.t", "column v")
    _only(_check(database, tmp_path, table={T: TableConfig(key=("nothing",))}), "public.t", "nothing")


def test_a_lake_of_another_source_is_an_error(database: Database, tmp_path: Path) -> None:
    """source.json of another system is named by check, not only by bootstrap."""
    database.execute(*_GOOD)
    document = SourceDoc("shop", "1", "x", 1, "now").to_bytes()
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "source.json").write_bytes(document)
    _only(_check(database, tmp_path), "belongs to system 1")


def test_an_unknown_source_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    """There is no source to report about, so the call fails."""
    with pytest.raises(ConfigError):
        check_source(Config(path=tmp_path, lake=str(tmp_path), sources={}), "shop")


@pytest.fixture(scope="module")
def narrow(make_server: MakeServer) -> Iterator[Database]:
    """A server without logical decoding, whose one slot is taken and whose one walsender is busy."""
    conf = {"wal_level": "replica", "max_replication_slots": "1", "max_wal_senders": "1", "fsync": "off"}
    with make_server(conf=conf) as server:
        database = Database(server, "postgres", server.dsn())
        database.execute("SELECT pg_create_physical_replication_slot('taken')")
        yield database


def test_a_server_that_can_not_replicate_has_a_remedy(narrow: Database, tmp_path: Path) -> None:
    """wal_level, no free slot, no free walsender: all three at once, each with its setting."""
    narrow.execute(*_GOOD)
    with psycopg.connect(f"{narrow.dsn} replication=true", autocommit=True):
        report = _check(narrow, tmp_path)
    texts = _found(report)
    assert len(texts) == 3
    for words in ("wal_level is replica", "max_replication_slots", "max_wal_senders"):
        assert any(words in text for text in texts)


@pytest.mark.since(15)
def test_privileges_on_columns_are_refused_with_the_reason(database: Database, tmp_path: Path) -> None:
    """The copy locks the table; the remedy that `check` names is all that a bootstrap needs then."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, secret text)",
        "INSERT INTO t VALUES (1, 'x')",
        "CREATE PUBLICATION pub FOR TABLE t (id)",
    )
    dsn = SecretStr(database.role("LOGIN REPLICATION"))
    role = SQL("GRANT SELECT (id) ON t TO {}").format(Identifier(database.roles[-1]))
    database.execute(role)
    report = _check(database, tmp_path, dsn=dsn)
    _only(report, "may read some of its columns", "LOCK TABLE", "column list", "GRANT SELECT ON public.t TO")
    assert [(c.name, c.generated) for c in report.tables[0].left_out] == [("secret", "")]
    with database.connect() as conn, psycopg.connect(dsn.get_secret_value()) as other:
        assert other.execute("SELECT id FROM t").fetchall() == [(1,)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            other.execute("LOCK TABLE t IN ACCESS SHARE MODE")
        conn.execute(SQL("GRANT SELECT ON t TO {}").format(Identifier(database.roles[-1])))
    source = database.source(dsn=dsn)
    copied = bootstrap(Config(path=tmp_path, lake=str(tmp_path / "lake"), sources={"shop": source}), "shop")
    assert copied.tables[T].rows == 1
