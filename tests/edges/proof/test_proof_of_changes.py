"""`prove --changed` compares what changed, says which proof finds what, and leaves to a whole proof what only that sees.

That a whole proof finds each damage is shown in `test_proof_without_spark.py`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import follow
from lakeproof.commands.maintain import MaintenanceRequest, maintain
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.events import Event, RunControl, Stop, silent
from lakeproof.lake.delta import committer
from lakeproof.lake.delta.files.data_files import deleted_rows
from lakeproof.lake.rows.change import Numbers
from lakeproof.lsn import Lsn
from lakeproof.proof import changed as prove_changed
from lakeproof.proof import changed_keys
from lakeproof.proof.record import Proved, read_record
from lakeproof.proof.result import ProofReport
from lakeproof.proof.run import ProofRequest
from lakeproof.storage.folder import Folder
from lakeproof.storage.source_lake import SourceLake
from tests.support.faults.damage import alter
from tests.support.faults.layer_files import Layer, kept, without
from tests.support.lake.proof_steps import WITHOUT, into_the_lake, table, wrong_in
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres

CHANGED = ProofRequest(changed=True)
WHOLE = ProofRequest()
_TABLES = (
    "CREATE TABLE keyed (id int PRIMARY KEY, v text, d date, n numeric(12,4), j text)",
    "CREATE TABLE still (id int PRIMARY KEY, v text)",
    "CREATE TABLE pairs (a text, b uuid, v text, PRIMARY KEY (a, b))",
    "CREATE PUBLICATION pub FOR TABLE keyed, still, pairs",
    """INSERT INTO keyed SELECT i, 'é' || i, CASE i % 9 WHEN 0 THEN 'infinity' ELSE date '2024-01-01' + i END, i / 7.0,
    md5(i::text) || md5(i || 'x') || md5(i || 'y') FROM generate_series(1, 4000) i""",
    "INSERT INTO still SELECT i, 'v' FROM generate_series(1, 2000) i",
    "INSERT INTO pairs SELECT 'a''\\' || i, gen_random_uuid(), 'v' FROM generate_series(1, 500) i",
)


@pytest.fixture
def config(database: Database, tmp_path: Path) -> Config:
    """A source whose tables are in the lake, and proven whole."""
    database.execute(*_TABLES)
    result = Config(path=tmp_path / "lakeproof.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source()})
    bootstrap(result, "shop")
    into_the_lake(result)
    assert wrong_in(proven(result, WHOLE)) == {}
    return result


def proven(config: Config, request: ProofRequest = CHANGED) -> ProofReport:
    """Prove without Spark: what changed, unless something else is asked for."""
    return prove(config, "shop", None, WITHOUT, request=request)


def kinds(proof: ProofReport) -> dict[str, tuple[str, int | None]]:
    """Return each table's kind of proof, and the number of keys that were compared."""
    return {t.name: (p.kind, p.keys) for t, p in proof.tables.items()}


def recorded(config: Config, name: str) -> Proved:
    """Return what is recorded of a table."""
    return read_record(SourceLake.open(config.location, "shop")).tables[table(name)]


def test_what_changed_is_compared_by_its_keys(database: Database, config: Config) -> None:
    """Nothing touched costs nothing; updates, moves, deletes and inserts are looked up on both sides."""
    still = {"keyed": ("changed", 0), "still": ("changed", 0), "pairs": ("changed", 0)}
    proof = proven(config)
    assert wrong_in(proof) == {}
    assert kinds(proof) == still
    database.execute(
        "UPDATE keyed SET v = 'x', d = '-infinity' WHERE id <= 20",
        "UPDATE keyed SET id = id + 100000 WHERE id BETWEEN 31 AND 33",
        "DELETE FROM keyed WHERE id = 40",
        "INSERT INTO keyed VALUES (50000, NULL, NULL, 1, NULL)",
        "UPDATE pairs SET v = 'w' WHERE a LIKE '%7'",
    )
    proof = proven(config)
    assert wrong_in(proof) == {}
    assert kinds(proof) == {"keyed": ("changed", 28), "still": ("changed", 0), "pairs": ("changed", 50)}
    assert proof.tables[table("keyed")].lake_rows == database.value("SELECT count(*) FROM keyed")
    assert wrong_in(proven(config, WHOLE)) == {}


def test_the_record_has_position_time_and_kind(database: Database, config: Config) -> None:
    """Each proof moves the position up to which a table is proven; the last whole comparison stays beside it."""
    before = recorded(config, "keyed")
    assert before.verified is not None
    assert before.verified == before.whole
    assert before.verified.kind == "whole"
    database.execute("UPDATE keyed SET v = 'x' WHERE id = 1")
    proof = proven(config)
    after = recorded(config, "keyed")
    assert after.verified is not None
    assert (after.verified.kind, after.verified.position) == ("changed", proof.position)
    assert after.verified.position > before.verified.position
    assert after.whole == before.whole
    assert after.rows == 4000


def test_a_truncate_a_rewrite_and_an_alter_are_compared_whole(database: Database, config: Config) -> None:
    """Whatever is more than some keys is compared whole, and is the base of the next proof of changes."""
    database.execute("TRUNCATE still", "INSERT INTO still VALUES (1, 'v')", "VACUUM FULL keyed")
    proof = proven(config)
    assert wrong_in(proof) == {}
    assert {name for name, (kind, _) in kinds(proof).items() if kind == "whole"} == {"still", "keyed"}
    assert {kind for kind, _ in kinds(proven(config)).values()} == {"changed"}
    database.execute("ALTER TABLE pairs ALTER v SET STATISTICS 5")
    assert kinds(proven(config))["pairs"] == ("whole", None), "nobody knows what an ALTER was about"
    assert wrong_in(proven(config)) == {}


def test_too_many_changes_are_compared_whole_in_turn(
    database: Database, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that does not fit into one proof of changes keeps its old proof, and says why; the next one takes it."""
    database.execute("UPDATE keyed SET v = 'x'", "UPDATE still SET v = 'x'")
    before = recorded(config, "keyed"), recorded(config, "still")
    sizes = [sum(f.bytes for f in Layer(config, name).rows.files) for name in ("keyed", "still")]
    # inside: sixty-four megabytes of changed tables take minutes to make
    monkeypatch.setattr(prove_changed, "WHOLE_BYTES_MAX", 2 * max(sizes))
    first = proven(config)
    left = {t.name for t, p in first.tables.items() if p.status == "blocked"}
    if left:
        (name,) = left
        assert "which a whole proof compares" in (first.tables[table(name)].reason or "")
        assert recorded(config, name) == before[("keyed", "still").index(name)]
    assert wrong_in(proven(config)) == {}
    monkeypatch.setattr(changed_keys, "KEYS_MAX", 10)  # inside: a hundred thousand changed keys take as long
    database.execute("UPDATE keyed SET v = 'y' WHERE id <= 50")
    proof = proven(config)
    assert wrong_in(proof) == {}
    assert kinds(proof)["keyed"] == ("whole", None)


def test_each_proof_finds_its_damage(database: Database, config: Config) -> None:
    """Damage under a touched key is found by both proofs, elsewhere in a file of the same name by a whole one."""
    layer = Layer(config, "keyed")
    old = newest(layer)
    database.execute("UPDATE keyed SET v = 'x' WHERE id <= 1200")
    changes: dict[str, Callable[[pa.Table, int], pa.Table]] = {
        "altered": lambda rows, row: put(layer, rows, row, "v", "other"),
        "moved to another key": lambda rows, row: put(layer, rows, row, "id", 777_777),
        "an exact text beside a value": lambda rows, row: put(layer, rows, row, "_lp_text", '{"4":"NaN"}'),
        "doubled": lambda rows, row: pa.concat_tables([rows, rows.slice(row, 1)]),
        "lost": lambda rows, row: without(row)(rows),
    }
    for number, (what, change) in enumerate(changes.items()):
        database.execute(f"UPDATE keyed SET v = 'x{number}' WHERE id <= 20")  # noqa: S608  the test's own
        into_the_lake(config)
        # Untouched files are alike: two of them are tried.
        files = ((newest(layer), True), (old, False))
        for file, touched in files if number < 2 else files[:1]:
            row = alive_in(layer, file)[-1]
            with kept(file):
                damage(layer, file, row_changed(change, row), same_length=not touched)
                changed, whole = proven(config), proven(config, WHOLE)
            assert "keyed" in wrong_in(whole), (what, touched)
            assert wrong_in(changed).keys() == ({"keyed"} if touched else set()), (what, touched)
            assert wrong_in(proven(config, WHOLE)) == {}, what
            database.execute(f"UPDATE keyed SET v = 'y{number}' WHERE id <= 20")  # noqa: S608  as above
            into_the_lake(config)


def test_a_file_or_vector_that_is_lost_or_cut_is_found_wherever_it_is(database: Database, config: Config) -> None:
    """Every file of a table is looked at, by its name and its length, though nothing of it was touched."""
    database.execute("DELETE FROM still WHERE id = 7")
    assert wrong_in(proven(config)) == {}
    layer = Layer(config, "still")
    vector = next(f.vector for f in layer.rows.files if f.vector is not None)
    data = layer.file().read_bytes()
    damages: dict[str, tuple[Path, bytes | None]] = {
        "a deletion vector is missing": (layer.folder / vector, None),
        "it is missing": (layer.file(), None),
        "it has": (layer.file(), data[:-1]),
    }
    for reason, (file, left) in damages.items():
        with kept(file):
            file.unlink()
            if left is not None:
                file.write_bytes(left)
            wrong = wrong_in(proven(config))
        assert wrong.keys() == {"still"}
        assert reason in wrong["still"]
        assert wrong_in(proven(config)) == {}, "it is compared whole again"


def test_a_flipped_byte_is_found_where_it_was_touched(database: Database, config: Config) -> None:
    """Any byte of a touched value may flip: the rows differ, or can't be read."""
    rng = random.Random(5)
    layer = Layer(config, "keyed")
    for number in range(8):
        database.execute(f"UPDATE keyed SET v = 'flip{number}-' || id, n = {number} WHERE id <= 40")  # noqa: S608  as above
        into_the_lake(config)
        file = newest(layer)
        group = pq.read_metadata(file).row_group(0)
        chunk = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == layer.physical("v"))
        data = bytearray(file.read_bytes())
        start = chunk.data_page_offset + chunk.total_compressed_size
        data[start - 1 - rng.randrange(20)] ^= 1 << rng.randrange(8)
        with kept(file):
            file.unlink()
            file.write_bytes(bytes(data))
            assert wrong_in(proven(config)).keys() == {"keyed"}
        assert wrong_in(proven(config, WHOLE)) == {}


@pytest.mark.since(15)
def test_a_change_behind_the_stream_is_for_a_whole_proof(database: Database, tmp_path: Path) -> None:
    """Rows that changed while the publication did not have their table are for a whole proof."""
    database.execute(
        "CREATE SCHEMA seen",
        "CREATE SCHEMA aside",
        "CREATE TABLE seen.t (id int PRIMARY KEY, v text, w text)",
        "INSERT INTO seen.t SELECT i, 'v', 'w' FROM generate_series(1, 3000) i",
        "CREATE PUBLICATION pub FOR TABLES IN SCHEMA seen",
    )
    config = Config(path=tmp_path / "lakeproof.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source()})
    bootstrap(config, "shop")
    into_the_lake(config)
    assert wrong_in(proven(config, WHOLE)) == {}
    database.execute(
        "ALTER TABLE seen.t SET SCHEMA aside",
        "UPDATE aside.t SET w = 'behind' WHERE id = 600",
        "DELETE FROM aside.t WHERE id = 601",
        "INSERT INTO aside.t VALUES (9000, 'behind')",
        "ALTER TABLE aside.t SET SCHEMA seen",
    )
    proof = proven(config)
    assert wrong_in(proof) == {}
    assert kinds(proof) == {"t": ("changed", 0)}
    database.execute("UPDATE seen.t SET v = 'touched' WHERE id = 5")
    assert wrong_in(proven(config)) == {}
    assert wrong_in(proven(config, WHOLE)).keys() == {"t"}
    assert wrong_in(proven(config)).keys() == {"t"}, "what differs is compared whole until it is equal"


def test_packed_files_are_proven_by_their_rows(database: Database, config: Config) -> None:
    """Files that were put together are compared with those before; other rows in them make it a matter for a whole proof."""
    for number in range(4):
        database.execute(f"UPDATE keyed SET v = 'p{number}' WHERE id % 100 = {number}")  # noqa: S608  as above
        into_the_lake(config)
    assert wrong_in(proven(config)) == {}
    small = config.sources["shop"]
    retention = small.retention.model_copy(update={"small_files": 2})
    packing = config.model_copy(update={"sources": {"shop": small.model_copy(update={"retention": retention})}})
    maintain(packing, "shop", WITHOUT, silent, MaintenanceRequest(), Stop())
    proof = proven(config)
    assert wrong_in(proof) == {}
    assert kinds(proof)["keyed"] == ("changed", 0)
    layer = Layer(config, "keyed")
    assert len(layer.rows.files) == 1
    database.execute("UPDATE keyed SET v = 'again' WHERE id = 500")
    into_the_lake(config)
    maintain(packing, "shop", WITHOUT, silent, MaintenanceRequest(), Stop())
    file = layer.file()
    commit = max((layer.folder / "_delta_log").glob("*.json"))
    with kept(file), kept(commit):
        size, rows = file.stat().st_size, pq.read_table(file)
        file.unlink()
        pq.write_table(put(layer, rows, 3, "v", "other"), file)
        log = commit.read_text(encoding="utf-8")
        commit.write_text(log.replace(f'"size":{size}', f'"size":{file.stat().st_size}'), encoding="utf-8")
        proof = proven(config)
    assert (proof.tables[table("keyed")].status, kinds(proof)["keyed"][0]) == ("differs", "whole")
    assert wrong_in(proven(config)) == {}


def row_changed(change: Callable[[pa.Table, int], pa.Table], row: int) -> Callable[[pa.Table], pa.Table]:
    """Return the change of one row."""
    return lambda rows: change(rows, row)


def damage(layer: Layer, file: Path, change: Callable[[pa.Table], pa.Table], *, same_length: bool) -> None:
    """Put other rows in a file's place; of the same length, at the price of rows that are deleted anyway."""
    if same_length:
        living, name = set(alive_in(layer, file)), layer.physical("j")

        def shorter(rows: pa.Table) -> pa.Table:
            values = [v if row in living else None for row, v in enumerate(rows.column(name).to_pylist())]
            return change(rows.set_column(rows.column_names.index(name), name, pa.array(values, pa.string())))

        alter(file, shorter)
        return
    rows = change(pq.read_table(file))
    file.unlink()
    pq.write_table(rows, file)


def newest(layer: Layer) -> Path:
    """Return the newest file of the layer that has live rows."""
    files = [layer.folder / f.path for f in layer.rows.files if f.live_rows]
    return max(files, key=lambda file: file.stat().st_mtime_ns)


def alive_in(layer: Layer, file: Path) -> list[int]:
    """Return the rows of a file that no vector deletes."""
    rows = layer.rows
    entry = next(f for f in rows.files if Path(f.path).name == file.name)
    gone = set() if entry.deleted is None else set(deleted_rows(rows.table, entry.deleted).tolist())
    return [row for row in range(pq.read_metadata(file).num_rows) if row not in gone]


def put(layer: Layer, rows: pa.Table, row: int, column: str, value: object) -> pa.Table:
    """Return rows with another value in one of them."""
    name = layer.physical(column)
    values = rows.column(name).to_pylist()
    assert values[row] != value
    values[row] = value
    return rows.set_column(rows.column_names.index(name), name, pa.array(values, rows.schema.field(name).type))


def test_a_follower_keeps_every_table_proven(database: Database, config: Config) -> None:
    """Proofs of changes run beside its cycles; a whole proof, and a locked table, have their turn between them."""
    source = config.sources["shop"]
    source = source.model_copy(update={"compaction": source.compaction.model_copy(update={"proof_changed_s": 0.3})})
    following = config.model_copy(update={"sources": {"shop": source}})
    stop, events = Stop(), list[Event]()
    thread = threading.Thread(target=follow, args=(following, "shop", WITHOUT, RunControl(events.append, stop)))
    thread.start()
    try:
        for number in range(2):
            database.execute(f"UPDATE keyed SET v = 'f{number}' WHERE id % 50 = {number}")  # noqa: S608  as above
            position = wal_position(database)
            until = time.monotonic() + 240
            while not all(is_proven(config, name, position) for name in ("keyed", "still", "pairs")):
                assert time.monotonic() < until, [event.message for event in events[-5:]]
                time.sleep(0.1)
        assert wrong_in(proven(config, WHOLE)) == {}
    finally:
        stop.request()
        thread.join()
    assert recorded(config, "keyed").verified is not None
    assert {e.fields["kind"] for e in events if e.kind == "prove.table"} == {"changed"}
    assert wrong_in(proven(config, WHOLE)) == {}


def wal_position(database: Database) -> Lsn:
    """Return the end of the server's log."""
    return Lsn.parse(str(database.value("SELECT pg_current_wal_insert_lsn()::text")))


def is_proven(config: Config, name: str, position: Lsn) -> bool:
    """True if a table is proven at this position or later."""
    verified = recorded(config, name).verified
    return verified is not None and verified.position >= position


@pytest.mark.parametrize("change", ["a row too many", "a row too few"])
def test_a_vector_that_a_commit_has_marked_wrongly_is_found_by_both_proofs(
    database: Database, config: Config, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A row marked that nobody deleted is a key that went, one not marked a key that is there twice: both are touched.

    Marked after it was proven, in a vector of the same name, it is found by a whole proof alone, as any such file is.
    """
    layer = Layer(config, "still")
    marks = committer._with_old

    def wrong(folder: Folder, entry: dict[str, Any], rows: Numbers) -> Numbers:
        right = marks(folder, entry, rows)
        if entry["path"] not in {file.path for file in layer.rows.files}:
            return right
        return np.union1d(right, [max(right) + 100]) if change == "a row too many" else right[:-1]

    # inside: no change in the source marks a wrong row
    monkeypatch.setattr(committer, "_with_old", wrong)
    database.execute("UPDATE still SET v = 'x' WHERE id BETWEEN 7 AND 9")
    into_the_lake(config)
    monkeypatch.undo()
    for request in (CHANGED, WHOLE):
        proof = proven(config, request)
        # What a whole proof reads of history does not add up to such a table either.
        assert wrong_in(proof).keys() - {"history of still"} == {"still"}
        assert proof.tables[table("still")].kind == ("changed" if request is CHANGED else "whole")
