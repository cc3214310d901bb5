"""`lakeproof.read` at the landing's end without a JVM: random changes of tables of every kind, which delta-rs wrote.

The same on tables that cycles wrote, and with Spark, is in `test_landed.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import lakeproof
from lakeproof.errors import ConfigError, LakeError
from lakeproof.lake.columns import current_columns, keeps_key
from lakeproof.lake.read.arrow import open as in_process
from lakeproof.lake.read.arrow.open import LandedRows
from lakeproof.lake.records.documents import Cut, CutOrdinals, CutTable, CycleKind
from lakeproof.lake.records.store import write_cut
from lakeproof.lake.rows.file_rows import FileRows, names_in_files
from lakeproof.landing.segments.reader import slices
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, TableName
from lakeproof.schema import Identity, SchemaVersion
from lakeproof.storage.times import now_text
from tests.support.lake.simulated_rows import column_array, row_of, schema, text_entries
from tests.support.lake.simulated_source import SOURCE, START, SimulatedSource, SimulatedTable
from tests.support.workloads.lake_workload import SEED, insert_random_row, make_tables, run_transactions


def tables() -> list[SimulatedTable]:
    """Tables of each kind, without a blank in their names: delta-rs finds none in such a folder."""
    result = make_tables()
    for table in result:
        name = table.version.table
        table.version = replace(table.version, table=TableName(name.schema, name.name.replace(" ", "_")))
    return result


def put_cut(source: SimulatedSource, number: int) -> None:
    """Write every table as it is now, and a cut at this position; each row holds its own large values."""
    position = Lsn(source.lsn)
    cut_tables = {}
    for name, table in source.tables.items():
        version, rows = table.version, table.rows
        hidden = {
            "_lp_text": pa.array([text_entries(version, row) for row in rows], pa.string()),
            "_lp_key": pa.nulls(len(rows), pa.string()),
            "_lp_dup": pa.array(range(len(rows)), pa.int64()),
            "_lp_ord": pa.array(range(len(rows)), pa.int64()),
            "_lp_from": pa.nulls(len(rows), pa.string()),
        }
        own = {c.name: column_array(c, [row[i] for row in rows]) for i, c in enumerate(version.columns)}
        if keeps_key(version):
            hidden["_lp_key"] = _keys(version, {**own, **hidden})
        columns = {column: {**own, **hidden}[column] for column in current_columns(version)}
        place = source.folder / source.lake.paths.current(name)
        deltalake.write_deltalake(str(place), pa.table(columns), mode="overwrite")
        cut_tables[name] = CutTable(
            at_lsn=position,
            snapshot_lsn=Lsn(START),
            history_version=0,
            current_version=number - 1,
            version=version,
            incarnation=Incarnation(1),
            snapshot_incarnation=Incarnation(1),
        )
    segments = source.chain.number_after(position)
    ordinals = CutOrdinals(1 << 40, 1 << 40)
    cut = Cut(
        number=CycleNumber(number),
        kind=CycleKind.APPLY,
        incarnation=Incarnation(1),
        position=position,
        commit_time=None,
        tables=cut_tables,
        next_segment=segments,
        intent_sha256="0" * 64,
        created_at=now_text(),
        ordinals=ordinals,
    )
    write_cut(source.lake, cut)


def _keys(version: SchemaVersion, columns: dict[str, pa.Array]) -> pa.Array:
    rows = {in_file: columns[name] for name, in_file in names_in_files(version, list(columns)).items()}
    rows["_lp_op"] = pa.array(["insert"] * len(columns["_lp_ord"]), pa.string())
    return FileRows(version, ["_lp_key"]).of(pa.record_batch(rows))["_lp_key"]


def check(source: SimulatedSource, table: SimulatedTable) -> None:
    """The table at the landing's end equals the source's."""
    landed = lakeproof.read(source.folder, at="landing")
    assert (landed.position(SOURCE), landed.stopped(SOURCE)) == (source.chain.end, None)
    name, version = table.version.table, table.version
    expected = source.state_at(source.chain.end)[name]
    rows = landed.table(SOURCE, name, hidden=True)
    assert Counter(row_of(row, version) for row in rows.arrow().to_pylist()) == expected, f"seed {SEED}"
    plain = landed.table(SOURCE, name)
    assert plain.schema.names == [c.name for c in version.columns]
    assert plain.select(version.columns[-1].name).arrow().num_rows == expected.total()


@pytest.mark.parametrize("rounds", [6, pytest.param(60, marks=pytest.mark.full)])
def test_what_has_landed_is_added_up_without_spark(tmp_path: Path, rounds: int) -> None:
    """Unchanged large values, moves and swaps of keys, truncates, values as exact texts, equal rows."""
    rng = random.Random(SEED)
    source = SimulatedSource(tmp_path, tables())
    for number in range(1, rounds + 1):
        put_cut(source, number)
        for _ in range(rng.randrange(1, 4)):
            run_transactions(rng, source, rng.randrange(1, 12))
            for table in source.tables.values():
                check(source, table)


def test_inserts_alone_leave_the_cut_s_rows(tmp_path: Path) -> None:
    """A range of inserts reads no key; a key of one column is looked for in another way than one of several."""
    rng = random.Random(SEED)
    table = SimulatedTable(schema("a", {"v": "text", "id": "int8"}, ("id",), Identity.DEFAULT, 1), large=(0,))
    source = SimulatedSource(tmp_path, [table])
    for number in (1, 2):
        put_cut(source, number)
        for _ in range(2):
            insert_random_row(rng, source, table)
            source.commit(rng)
        source.flush()
        check(source, table)
    run_transactions(rng, source, 20)
    check(source, table)


def test_what_spark_has_to_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More changes than fit; history, which cycles make."""
    rng = random.Random(SEED)
    source = SimulatedSource(tmp_path, tables())
    put_cut(source, 1)
    idle = lakeproof.read(tmp_path, at="landing")
    assert [idle.table(SOURCE, name).arrow().num_rows for name in source.tables] == [0] * 5
    run_transactions(rng, source, 40)
    # The last random change may have emptied it.
    insert_random_row(rng, source, source.table("order_lines"))
    source.commit(rng)
    source.flush()
    landed = lakeproof.read(tmp_path, at="landing")
    rows = landed.table(SOURCE, "app.order_lines")
    assert isinstance(rows, LandedRows)
    with pytest.raises(ConfigError, match="there is none of that name"):
        rows.select("other")
    with pytest.raises(LakeError, match="history is made by cycles"):
        landed.history(SOURCE, "app.bag")
    monkeypatch.setattr(in_process, "CHANGES_BYTES_MAX", 1)  # inside: its real limit takes 128 MiB
    with pytest.raises(LakeError, match="of its changes have landed"):
        landed.table(SOURCE, "app.order_lines")


def test_a_damaged_segment_is_no_row(tmp_path: Path) -> None:
    """A file that is not as it was written is found before anything of it is read."""
    rng = random.Random(SEED)
    table = SimulatedTable(schema("a", {"id": "int8"}, ("id",), Identity.DEFAULT, 1))
    source = SimulatedSource(tmp_path, [table])
    put_cut(source, 1)
    insert_random_row(rng, source, table)
    source.commit(rng)
    source.flush()
    (piece,) = slices(source.chain, Lsn(START), source.chain.end)
    file = Path(piece.url.removeprefix("file://"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(LakeError, match="checksum"):
        lakeproof.read(tmp_path, at="landing").table(SOURCE, "app.a")
