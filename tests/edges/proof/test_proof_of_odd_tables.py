"""Proofs of tables that few sources have: odd names, keys that PostgreSQL calls equal, logs that contradict their files.

Ordinary tables are in `test_proof_without_spark.py` and `test_proof_of_changes.py`.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import SecretStr

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config, TableConfig, ViewConfig
from lakeproof.events import Stop, silent
from lakeproof.lake.delta.log import state as log_state
from lakeproof.lake.delta.log.checkpoint import write_checkpoint
from lakeproof.lake.delta.log.commits import newest_version
from lakeproof.postgres.catalog.published import read_tables
from lakeproof.postgres.copying.snapshot import SnapshotSession
from lakeproof.proof import changed as prove_changed
from lakeproof.proof import repair as prove_repair
from lakeproof.proof.keys_to_repair import KeysToRepair
from lakeproof.proof.repair import Repair, copy_keys
from lakeproof.proof.result import ProofReport
from lakeproof.proof.run import ProofRequest
from lakeproof.proof.tables import OpenProof
from lakeproof.storage.folder import Folder
from lakeproof.storage.source_lake import SourceLake
from lakeproof.values.exact_kinds import key_columns
from tests.support.faults.layer_files import Layer, kept
from tests.support.lake.proof_steps import WITHOUT, into_the_lake, table, wrong_in
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres

CHANGED = ProofRequest(changed=True)
HISTORY = ProofRequest(history=True)


def lake_of(database: Database, tmp_path: Path, *statements: str) -> Config:
    """Make tables and their publication, and bring them into the lake."""
    database.execute(*statements)
    config = Config(path=tmp_path / "lakeproof.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source()})
    bootstrap(config, "shop")
    into_the_lake(config)
    return config


def proven(config: Config, request: ProofRequest | None = None) -> ProofReport:
    """Prove without Spark."""
    return prove(config, "shop", None, WITHOUT, request=request)


def test_keys_that_postgresql_calls_equal_are_compared_once(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row whose key was 1 and is 1.0 is found under both keys; each in its own statement, it is one row all the same."""
    config = lake_of(
        database,
        tmp_path,
        "CREATE TABLE numbers (id numeric PRIMARY KEY, v text)",
        "INSERT INTO numbers SELECT i, 'v' FROM generate_series(1, 1000) i",
        "CREATE PUBLICATION pub FOR TABLE numbers",
    )
    assert wrong_in(proven(config)) == {}
    database.execute("UPDATE numbers SET id = id::numeric(20,1) WHERE id <= 3")
    # inside: a thousand keys are in one statement
    monkeypatch.setattr(prove_changed, "KEYS_AT_ONCE", 1)
    proof = proven(config, CHANGED)
    assert wrong_in(proof) == {}
    assert proof.tables[table("numbers")].keys == 6
    assert wrong_in(proven(config)) == {}


def test_a_repair_reads_a_row_once_whose_key_equals_another(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source has one of the keys 1 and 1.0, and its row is copied under that one alone."""
    config = lake_of(
        database,
        tmp_path,
        "CREATE TABLE numbers (id numeric PRIMARY KEY, v text)",
        "INSERT INTO numbers VALUES (1.0, 'v'), (2, 'v')",
        "CREATE PUBLICATION pub FOR TABLE numbers",
    )
    # inside: a thousand keys are in one statement
    monkeypatch.setattr(prove_repair, "KEYS_AT_ONCE", 1)
    source, numbers = config.sources["shop"], table("numbers")
    session = SnapshotSession(source.dsn, "lakeproof_test_repair", temporary=True)
    with session, session.open() as conn:
        lake = SourceLake.open(config.location, "shop")
        proof = OpenProof(config, source, lake, WITHOUT, session, conn, silent)
        columns = key_columns(read_tables(conn, source, refused={})[numbers].version)
        keys = KeysToRepair([("1",), ("1.0",), ("2.00",)], columns=columns)
        placed = copy_keys(proof, Repair({numbers: keys}), Stop())
    assert placed is not None
    assert placed.copy.tables[numbers].rows.rows == 1
    assert placed.copy.tables[numbers].keys.rows == 3


def test_a_history_whose_key_has_a_dot_is_added_up(database: Database, tmp_path: Path) -> None:
    """Arrow takes such a name for a path, and there may be a column at its end."""
    config = lake_of(
        database,
        tmp_path,
        'CREATE TABLE dots (".a" int, a int, "a.b" text, PRIMARY KEY (".a", "a.b"))',
        "INSERT INTO dots SELECT i, 1, 'v' FROM generate_series(1, 20) i",
        "CREATE PUBLICATION pub FOR TABLE dots",
    )
    database.execute('UPDATE dots SET a = 2 WHERE ".a" = 3', 'DELETE FROM dots WHERE ".a" = 4')
    into_the_lake(config)
    proof = proven(config, HISTORY)
    assert wrong_in(proof) == {}
    assert proof.lake is not None
    assert [*proof.lake.histories] == [table("dots")]


@pytest.mark.parametrize(
    ("column", "text", "held"),
    [
        ("d", "{2024-01-01,NULL}", False),
        ("n", "{1.00,-2.50}", False),
        ("at", '{"2024-01-01 00:00:00"}', False),
        ("at", '{"2024-01-01 00:00:00",infinity}', True),
    ],
)
def test_an_array_that_readers_do_not_see_differs(
    database: Database, tmp_path: Path, column: str, text: str, held: bool
) -> None:
    """An exact text stands for an array that the lake's type does not hold, and for no other, whatever its elements are."""
    config = lake_of(
        database,
        tmp_path,
        "CREATE TABLE lists (id int PRIMARY KEY, d date[], n numeric(5,2)[], at timestamp[])",
        f"INSERT INTO lists (id, {column}) SELECT i, '{text}' FROM generate_series(1, 5) i",  # noqa: S608  the test's own
        "CREATE PUBLICATION pub FOR TABLE lists",
    )
    assert wrong_in(proven(config)) == {}
    layer = Layer(config, "lists")
    number = {"d": 2, "n": 3, "at": 4}[column]

    def hidden(rows: pa.Table) -> pa.Table:
        texts = pa.array([json.dumps({str(number): text})] * rows.num_rows, pa.string())
        for name, values in ((column, None), ("_lp_text", texts)):
            place = rows.column_names.index(layer.physical(name))
            field = rows.schema.field(place)
            rows = rows.set_column(place, field, pa.nulls(rows.num_rows, field.type) if values is None else values)
        return rows

    layer.rewrite(hidden)
    assert (wrong_in(proven(config)) == {}) is held


def test_a_table_that_may_not_be_read_leaves_the_others_proven(database: Database, tmp_path: Path) -> None:
    """The role lacks a privilege, or would not see every row: nothing is known of it, and the others are compared."""
    config = lake_of(
        database,
        tmp_path,
        "CREATE TABLE mine (id int PRIMARY KEY)",
        "CREATE TABLE yours (id int PRIMARY KEY)",
        "INSERT INTO mine VALUES (1)",
        "INSERT INTO yours VALUES (1)",
        "CREATE PUBLICATION pub FOR TABLE mine, yours",
    )
    role = database.role("LOGIN REPLICATION")
    name = database.value("SELECT max(rolname) FROM pg_roles WHERE rolname = ANY (%s)", (database.roles,))
    database.execute(f'GRANT SELECT ON mine TO "{name}"')
    source = config.sources["shop"].model_copy(update={"dsn": SecretStr(role)})
    weak = config.model_copy(update={"sources": {"shop": source}})
    for statement, reason in (
        ("SELECT 1", "permission denied"),
        (f'GRANT SELECT ON yours TO "{name}"', None),
        ("ALTER TABLE yours ENABLE ROW LEVEL SECURITY", "row-level security"),
    ):
        database.execute(statement)
        wrong = wrong_in(proven(weak))
        assert wrong.keys() == (set() if reason is None else {"yours"}), statement
        assert reason is None or ("blocked" in wrong["yours"] and reason in wrong["yours"])


def test_a_table_that_no_copy_takes_says_why_and_not_to_copy_it(database: Database, tmp_path: Path) -> None:
    """A table that came into the publication is to be copied, unless a copy would refuse it: then the reason comes first."""
    config = lake_of(
        database,
        tmp_path,
        "CREATE TABLE kept (id int PRIMARY KEY)",
        "CREATE TABLE empty ()",
        "CREATE TABLE new (id int PRIMARY KEY)",
        "ALTER TABLE empty REPLICA IDENTITY FULL",
        "CREATE PUBLICATION pub FOR TABLE kept",
    )
    database.execute("ALTER PUBLICATION pub ADD TABLE empty, new")
    for request in (None, CHANGED):
        wrong = wrong_in(proven(config, request))
        assert wrong == {
            "empty": "missing: it is not in the lake, and can't be copied: it has no published column; add a column, or take"
            " the table out",
            "new": "missing: it is not in the lake yet; run `lakeproof bootstrap shop --tables public.new`, then compact",
        }


@pytest.mark.parametrize(
    "options",
    [{"as_text": ("n",)}, {"key": ("n",)}, {"numeric": {"n": (9, 2)}}, {"numeric": {"n": (9, 3)}}, {}],
    ids=["text", "key", "digits", "scale", "none"],
)
def test_a_table_that_is_configured_otherwise_is_to_be_copied(
    database: Database, tmp_path: Path, options: dict[str, object]
) -> None:
    """No drain brings what is no change of the catalog; a proof does not say that it would, and goes on saying it."""
    database.execute("CREATE TABLE t (id int, n numeric)", "ALTER TABLE t REPLICA IDENTITY FULL")
    database.execute("CREATE TABLE other (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR ALL TABLES")

    def configured(**options: object) -> Config:
        source = database.source(table={table("t"): TableConfig.model_validate(options)})
        return Config(path=tmp_path / "lakeproof.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})

    before = configured(numeric={"n": (8, 2)}, key=("id",))
    bootstrap(before, "shop")
    into_the_lake(before)
    assert proven(before).equal
    after = configured(**options)
    for request in (None, CHANGED):
        into_the_lake(after)
        wrong = wrong_in(proven(after, request))
        assert wrong.keys() == {"t"}
        assert wrong["t"].startswith("held: its schema changed")
        assert wrong["t"].endswith("run `lakeproof bootstrap shop --tables public.t`, then compact")
    assert proven(before).equal


def test_a_file_with_a_row_that_its_commit_does_not_count_is_found(database: Database, tmp_path: Path) -> None:
    """Nobody has touched the key of a row too many, so a proof of changes believes no count that the file contradicts."""
    config = lake_of(
        database,
        tmp_path,
        "CREATE TABLE items (id int PRIMARY KEY, v text)",
        "INSERT INTO items SELECT i, 'v' FROM generate_series(1, 2000) i",
        "CREATE PUBLICATION pub FOR TABLE items",
    )
    assert wrong_in(proven(config)) == {}
    database.execute("UPDATE items SET v = 'x' WHERE id <= 3")
    into_the_lake(config)
    layer = Layer(config, "items")
    file = max((layer.folder / f.path for f in layer.rows.files), key=lambda f: f.stat().st_mtime_ns)
    commit = max((layer.folder / "_delta_log").glob("*.json"))
    with kept(file), kept(commit):
        rows, size = pq.read_table(file), file.stat().st_size
        place = rows.column_names.index(layer.physical("id"))
        added = rows.slice(0, 1).set_column(place, rows.schema.field(place), pa.array([1000], pa.int32()))
        file.unlink()
        pq.write_table(pa.concat_tables([rows, added]), file)
        log = commit.read_text(encoding="utf-8")
        commit.write_text(log.replace(f'"size":{size}', f'"size":{file.stat().st_size}'), encoding="utf-8")
        assert wrong_in(proven(config, CHANGED)).keys() == {"items"}
    assert wrong_in(proven(config)) == {}


def test_a_checkpoint_that_lacks_a_file_is_found(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads the log believes a checkpoint, and nobody has touched the file since it was proven."""
    config = lake_of(
        database,
        tmp_path,
        "CREATE TABLE items (id int PRIMARY KEY, v text)",
        "INSERT INTO items SELECT i, 'v' FROM generate_series(1, 2000) i",
        "CREATE PUBLICATION pub FOR TABLE items",
    )
    database.execute("UPDATE items SET v = 'x' WHERE id <= 3")
    into_the_lake(config)
    assert wrong_in(proven(config)) == {}
    layer = Layer(config, "items")
    lost = max(layer.rows.files, key=lambda file: (layer.folder / file.path).stat().st_mtime_ns).path
    database.execute("UPDATE items SET v = 'y' WHERE id = 9")
    into_the_lake(config)
    path = str(layer.folder)
    whole = log_state.read_state(path, newest_version(path))
    state = dataclasses.replace(whole, files={name: entry for name, entry in whole.files.items() if name != lost})
    assert len(state.files) == len(whole.files) - 1
    write_checkpoint(Folder.at(path), state)
    # inside: another process has no state of the log in its memory
    monkeypatch.setattr(log_state, "_kept", log_state._Kept())
    assert wrong_in(proven(config, CHANGED)).keys() == {"items"}


def test_a_view_that_was_never_refreshed_needs_no_session(database: Database, tmp_path: Path) -> None:
    """A proof says so, and is not kept waiting by a JVM for it."""
    config = lake_of(
        database,
        tmp_path,
        "CREATE TABLE t (id int PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "CREATE PUBLICATION pub FOR TABLE t",
    )
    (tmp_path / "v.sql").write_text("SELECT id FROM t", encoding="utf-8")
    view = ViewConfig(name="v", sql_file=tmp_path / "v.sql", reads={"t": ("shop", table("t"))})
    proof = proven(config.model_copy(update={"views": {"v": view}}))
    assert proof.tables[table("t")].status == "equal"
    assert proof.lake is not None
    assert (proof.lake.views["v"].status, proof.lake.views["v"].reason) == ("blocked", "it was never refreshed")
