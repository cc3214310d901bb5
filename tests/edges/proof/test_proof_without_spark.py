"""`prove` of tables that fit starts no JVM, and finds whatever is wrong with a file, a vector or a row of the source.

Every test ends with the proof's word on the whole lake; that values of every type have one form belongs to
`test_exact_forms.py`, each corruption of a value to `test_proof_corruptions.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg.pq import TransactionStatus
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config, TableConfig
from lakeproof.events import Event, RunControl
from lakeproof.names import TableName
from lakeproof.proof.lake import history_in_arrow
from lakeproof.proof.lake import in_arrow as lake_in_arrow
from lakeproof.proof.result import ProofReport
from lakeproof.proof.run import ProofRequest
from tests.support.faults.layer_files import Change, Layer, alive, kept, put, set_texts, set_value, without
from tests.support.lake.proof_steps import WITHOUT, into_the_lake, table, wrong_in
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres

_TABLES = (
    "CREATE TABLE keyed (id int PRIMARY KEY, v text, d date, n numeric(12,4), at timestamptz, f float8)",
    "CREATE TABLE large (id int PRIMARY KEY, n int, doc text, other text)",
    "ALTER TABLE large ALTER doc SET STORAGE EXTERNAL, ALTER other SET STORAGE EXTERNAL",
    "CREATE TABLE parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (50)",
    "CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (50) TO (100000)",
    "CREATE TABLE emptied (id int PRIMARY KEY, v text)",
    "CREATE PUBLICATION pub FOR TABLE keyed, large, parts, emptied WITH (publish_via_partition_root)",
    """INSERT INTO keyed SELECT i, 'é' || i, CASE i % 9 WHEN 0 THEN 'infinity' ELSE date '2024-01-01' + i END, i / 7.0,
    '2024-01-01'::timestamptz + i * interval '1.5 s', i / 3.0 FROM generate_series(1, 2500) i""",
    "INSERT INTO large SELECT i, i, repeat('y', 9000) || i, repeat('z', 9000) || i FROM generate_series(1, 40) i",
    "INSERT INTO parts SELECT i, 'v' FROM generate_series(1, 99) i",
    "INSERT INTO emptied SELECT i, 'v' FROM generate_series(1, 99) i",
)
_CHANGES = (
    "UPDATE keyed SET v = v || 'x', f = '-0', n = 0 WHERE id % 50 = 0",
    "UPDATE keyed SET id = id + 10000 WHERE id % 70 = 0",
    "DELETE FROM keyed WHERE id = 11",
    "UPDATE large SET n = n + 1 WHERE id < 20",
    "UPDATE large SET n = n + 1, other = 'short' WHERE id < 5",
    "UPDATE large SET id = id + 100, n = n + 1 WHERE id < 3",
    "UPDATE parts SET id = id + 200 WHERE id = 7",
    "DELETE FROM parts WHERE id = 60",
    "TRUNCATE emptied",
    "INSERT INTO emptied VALUES (7, 'again')",
)
# Tables whose rows have a computed key, or bring the whole old row.
_COMPUTED = (
    "CREATE TABLE dated (d date, f float4, v text, PRIMARY KEY (f, d))",
    "CREATE TABLE bag (f float8, v text)",
    "ALTER TABLE bag REPLICA IDENTITY FULL",
    "CREATE TABLE whole (id int PRIMARY KEY, v text, doc text)",
    "ALTER TABLE whole REPLICA IDENTITY FULL",
    "ALTER TABLE whole ALTER doc SET STORAGE EXTERNAL",
    "CREATE TABLE named (code char(4), v numeric)",
    "ALTER TABLE named REPLICA IDENTITY FULL",
    "ALTER PUBLICATION pub ADD TABLE dated, bag, whole, named",
    "INSERT INTO dated SELECT date '2024-01-01' + i, i / 3.0, 'v' FROM generate_series(1, 300) i",
    "INSERT INTO dated VALUES ('infinity', '-0', 'x'), ('0044-03-15 BC', 'NaN', '')",
    "INSERT INTO bag SELECT i % 3, 'v' || i % 5 FROM generate_series(1, 300) i",
    "INSERT INTO whole SELECT i, 'v', repeat('x', 9000) || i FROM generate_series(1, 40) i",
    "INSERT INTO named SELECT 'a' || i, i * 1.50 FROM generate_series(1, 9) i",
)
_COMPUTED_CHANGES = (
    "UPDATE dated SET d = '-infinity' WHERE d = 'infinity'",
    "UPDATE dated SET v = NULL WHERE f > 90",
    "INSERT INTO bag VALUES ('-0', 'z'), ('-0', 'z'), (0, 'z')",
    "DELETE FROM bag WHERE ctid IN (SELECT ctid FROM bag LIMIT 20)",
    "UPDATE bag SET v = 'other' WHERE v = 'v1'",
    "UPDATE whole SET v = 'w' WHERE id < 9",
    "UPDATE whole SET id = id + 100, v = 'moved' WHERE id < 3",
    "DELETE FROM whole WHERE id = 20",
    "UPDATE named SET v = NULL WHERE code = 'a3'",
    "UPDATE large SET doc = 'new' WHERE id = 7",
)
EVERYTHING = ProofRequest(history=True)


@pytest.fixture
def config(database: Database, tmp_path: Path) -> Config:
    """A source with tables of all makes, whose rows and two rounds of changes are in the lake."""
    database.execute(*_TABLES)
    source = database.source()
    result = Config(path=tmp_path / "lakeproof.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})
    bootstrap(result, "shop")
    into_the_lake(result)
    database.execute(*_CHANGES)
    into_the_lake(result)
    database.execute("UPDATE keyed SET v = 'newest' WHERE id IN (1, 2)", "UPDATE large SET n = 0 WHERE id = 30")
    return result


def proven(config: Config, request: ProofRequest = EVERYTHING) -> ProofReport:
    """Prove everything, without Spark."""
    return prove(config, "shop", None, WITHOUT, request=request)


def test_everything_is_proven_without_a_jvm(database: Database, config: Config) -> None:
    """Tables, histories and what they add up to; the small tables share a statement."""
    proof = proven(config)
    assert wrong_in(proof) == {}
    assert proof.equal
    assert {p.by_spark for p in proof.tables.values()} == {None}
    assert proof.lake is not None
    assert len(proof.lake.histories) == len(proof.tables) == 4
    assert proof.tables[table("keyed")].source_rows == database.value("SELECT count(*) FROM keyed")
    layer = Layer(config, "keyed")
    layer.rewrite(set_value(layer, "v", "damaged"))
    wrong = proven(config, ProofRequest())
    (key,) = wrong.tables[table("keyed")].differing_keys
    assert (key.source_rows, key.lake_rows) == (1, 1)
    assert wrong.tables[table("keyed")].differing_buckets == 1


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.slow
def test_what_both_engines_have_written_is_proven_by_each(
    database: Database, config: Config, spark: SparkSession
) -> None:
    """Bags, computed keys and whole old rows, copied by Spark and changed by this process: each finds the same damage."""
    database.execute(*_COMPUTED)
    named = database.source(table={table("named"): TableConfig(key=("code",), numeric={"v": (12, 3)})})
    config = config.model_copy(update={"sources": {"shop": named}})
    bootstrap(config, "shop", [table(name) for name in ("dated", "bag", "whole", "named")])
    source = config.sources["shop"]
    by_spark = source.model_copy(update={"compaction": source.compaction.model_copy(update={"engine": "spark"})})
    elsewhere = config.model_copy(update={"sources": {"shop": by_spark}})
    into_the_lake(elsewhere, spark)
    database.execute(*_COMPUTED_CHANGES)
    into_the_lake(config, spark)

    def both() -> dict[str, str]:
        ways = (proven(config), prove(elsewhere, "shop", None, spark, request=EVERYTHING))
        whys = ({p.by_spark for p in proof.tables.values()} for proof in ways)
        assert [*whys] == [{None}, {"compaction.engine is spark"}]
        wrong = [{what: why.split(":")[0] for what, why in wrong_in(proof).items()} for proof in ways]
        assert wrong[0] == wrong[1]
        return wrong[0]

    assert both() == {}
    for name, column in (("bag", "v"), ("whole", "doc"), ("dated", "v"), ("named", "v")):
        layer = Layer(config, name)
        with kept(layer.file()):
            layer.rewrite(set_value(layer, column, None))
            assert both() == {name: "differs", f"history of {name}": "differs"}
    assert both() == {}


def test_every_damage_of_a_file_of_current_is_found(config: Config) -> None:
    """One at a time; each is found in its own table, and nothing else is: current is not what its history adds up to."""
    assert wrong_in(proven(config)) == {}
    layers = {name: Layer(config, name) for name in ("keyed", "large")}
    changes: dict[str, tuple[str, Callable[[Layer], Change]]] = {
        "a row doubled": (
            "keyed",
            lambda layer: lambda rows: pa.concat_tables([rows, rows.slice(alive(layer)[-1], 1)]),
        ),
        "a row lost": ("keyed", lambda layer: without(alive(layer)[-1])),
        "a row moved to another key": ("keyed", lambda layer: set_value(layer, "id", 123_456)),
        "a value altered": ("keyed", lambda layer: set_value(layer, "v", "other")),
        "a large value altered": ("large", lambda layer: set_value(layer, "doc", "y" * 9000)),
        "a value lost": ("large", lambda layer: set_value(layer, "other", None)),
        "a text beside a value": ("keyed", lambda layer: set_value(layer, "_lp_text", '{"3":"infinity"}')),
        "an exact text lost": ("keyed", lambda layer: set_texts(layer, lambda _: None)),
        "an exact text altered": (
            "keyed",
            lambda layer: set_texts(layer, lambda text: text.replace("infinity", "-infinity")),
        ),
        "an exact text cut": ("keyed", lambda layer: set_texts(layer, lambda text: text[:-2])),
    }
    for what, (name, change) in changes.items():
        layer = layers[name]
        with kept(layer.file()):
            layer.rewrite(change(layer))
            wrong = wrong_in(proven(config, EVERYTHING))
        assert wrong.keys() == {name, f"history of {name}"}, (what, wrong)
        assert wrong[name].startswith("differs: "), (what, wrong)
        assert "current is not what they add up to" in wrong[f"history of {name}"], (what, wrong)
    assert wrong_in(proven(config)) == {}


def test_a_flipped_byte_and_a_lost_file_or_vector_are_found(config: Config) -> None:
    """Wherever a byte of the rows is flipped, the table differs, by its values or since its file can't be read."""
    assert wrong_in(proven(config)) == {}
    rng = random.Random(3)
    layer, history = Layer(config, "keyed"), Layer(config, "keyed", "history")
    for which in (layer, history):
        file = which.file()
        chunks = pq.read_metadata(file).row_group(0)
        names = {which.physical(column) for column in ("id", "v", "n")}
        for number in range(chunks.num_columns):
            chunk = chunks.column(number)
            if chunk.path_in_schema not in names:
                continue
            data = bytearray(file.read_bytes())
            start = chunk.data_page_offset + 40
            data[rng.randrange(start, start + chunk.total_compressed_size - 60)] ^= 1 << rng.randrange(8)
            with kept(file):
                put(file, bytes(data))
                wrong = wrong_in(proven(config))
            # A page's header may have the byte in what says nothing of its values.
            expected = "keyed" if which is layer else "history of keyed"
            assert expected in wrong, (chunk.path_in_schema, wrong)
    with kept(layer.file()):
        layer.file().unlink()
        wrong = wrong_in(proven(config))
    assert "can't be read" in wrong["keyed"]
    assert "is missing" in wrong["keyed"]
    (vector, *_) = [f.deleted for f in layer.rows.files if f.deleted is not None]
    assert vector.file is not None, "the cycle has written its vectors into a file"
    with kept(layer.folder / vector.file):
        (layer.folder / vector.file).unlink()
        assert "a deletion vector is missing" in wrong_in(proven(config))["keyed"]
    with kept(history.file()):
        history.rewrite(set_value(history, "v", "altered"))
        assert wrong_in(proven(config)).keys() == {"history of keyed"}
    assert wrong_in(proven(config)) == {}


@pytest.mark.since(15)
def test_a_row_that_was_altered_behind_the_stream_is_found_by_its_key(database: Database, tmp_path: Path) -> None:
    """Changes that were made while the publication did not have the table leave no trace but the rows themselves."""
    database.execute(
        "CREATE SCHEMA seen",
        "CREATE SCHEMA aside",
        "CREATE TABLE seen.t (id int PRIMARY KEY, v text)",
        "INSERT INTO seen.t SELECT i, 'v' FROM generate_series(1, 3000) i",
        "CREATE PUBLICATION pub FOR TABLES IN SCHEMA seen",
    )
    config = Config(path=tmp_path / "lakeproof.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source()})
    bootstrap(config, "shop")
    into_the_lake(config)
    assert wrong_in(proven(config)) == {}
    database.execute(
        "ALTER TABLE seen.t SET SCHEMA aside",
        "UPDATE aside.t SET v = 'behind' WHERE id = 600",
        "DELETE FROM aside.t WHERE id = 601",
        "INSERT INTO aside.t VALUES (9000, 'behind')",
        "ALTER TABLE aside.t SET SCHEMA seen",
    )
    proof = proven(config)
    assert wrong_in(proof).keys() == {"t"}
    actual = proof.tables[TableName("seen", "t")]
    keys = {key.key["id"]: (key.source_rows, key.lake_rows) for key in actual.differing_keys}
    assert keys == {"600": (1, 1), "601": (0, 1), "9000": (1, 0)}
    assert actual.differing_buckets <= 3, "a table of 3,000 rows has as many buckets"
    assert "of 3 buckets differ" in (actual.reason or "")


def test_a_table_that_is_locked_leaves_the_others_proven(database: Database, config: Config) -> None:
    """Small tables are read together; if one's lock can't be had, each is read by itself, and that one is blocked."""
    source = config.sources["shop"]
    short = source.model_copy(update={"snapshot": source.snapshot.model_copy(update={"lock_timeout_s": 0.5})})
    hurried = config.model_copy(update={"sources": {"shop": short}})
    with database.connect(autocommit=False) as other:

        def lock(event: Event) -> None:
            if event.kind == "prove.progress" and other.info.transaction_status is TransactionStatus.IDLE:
                other.execute("LOCK TABLE large IN ACCESS EXCLUSIVE MODE")

        proof = prove(hurried, "shop", None, WITHOUT, RunControl(lock), ProofRequest())
    assert {t.name: p.status for t, p in proof.tables.items() if p.status != "equal"} == {"large": "blocked"}
    # A copy of it would be no way out: nothing is wrong with what the lake has.
    assert (
        proof.tables[table("large")].reason == "its lock could not be taken within 0.5 s; run `lakeproof prove` again"
    )
    assert wrong_in(proven(config)) == {}


@pytest.mark.parametrize("module", [lake_in_arrow, history_in_arrow])
def test_what_is_too_large_asks_for_spark(config: Config, monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    """The bound is on the bytes of rows, not on the number of tables."""
    monkeypatch.setattr(module, "BYTES_MAX", 1000)  # inside: a gigabyte of rows takes minutes to make
    with pytest.raises(pytest.fail.Exception, match="a JVM was to be started"):
        proven(config)
