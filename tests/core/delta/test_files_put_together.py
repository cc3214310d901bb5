"""Small files are put together on the version that was looked at: what somebody has committed since is not taken over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lakeproof.errors import TransientError
from lakeproof.lake.delta.arrow_rows import DeltaRows
from lakeproof.lake.delta.committer import AddedFile, LoggedOperation, PendingCommit
from lakeproof.lake.delta.files.optimize import SmallFiles, is_crowded
from lakeproof.lake.delta.log.commits import read_commit
from lakeproof.lake.delta.log.protocol import metadata_of, new_fields
from lakeproof.lake.delta.log.state import TableState, read_state
from lakeproof.lake.spark_on_demand import NoSparkError, SparkOnDemand


def _no_session() -> NoReturn:
    raise NoSparkError("Spark", "this test has none", "report this")


NO_SPARK = SparkOnDemand(_no_session)


def _table(path: Path, rows: int) -> TableState:
    """A table of so many rows, each in a file of its own."""
    for number in range(rows):
        write_deltalake(path, pa.table({"v": [number]}), mode="append")
    return read_state(str(path), rows - 1)


def test_files_are_put_together_in_a_commit_of_the_version_that_was_read(tmp_path: Path) -> None:
    """The rows stay, in fewer files."""
    state = _table(tmp_path, 3)
    assert SmallFiles(NO_SPARK, state, "v").optimize(1, "{}") == 3
    assert len(read_state(str(tmp_path), 3).files) == 1
    assert DeltaTable(tmp_path).to_pyarrow_table().column("v").to_pylist() == [0, 1, 2]
    commit = read_commit(str(tmp_path), 3)
    assert commit is not None
    assert not commit.changes_data, "who streams the table would get its rows again"


def test_a_table_whose_own_commits_crowd_it_is_noticed(tmp_path: Path) -> None:
    """Without reading its log: after each cycle every table is asked."""
    state: TableState | None = None
    for number in range(4):
        entry = {"path": f"{number}.parquet", "size": 9, "stats": '{"numRecords": 1}', "partitionValues": {}}
        state = _with_file(str(tmp_path), entry, state)
    assert is_crowded(str(tmp_path), 3, 4)
    assert not is_crowded(str(tmp_path), 3, 5)
    assert not is_crowded(str(tmp_path), 2, 3), "another version than the one made last"


@pytest.mark.parametrize("rows", [1, 3])
def test_what_somebody_has_committed_since_is_not_named(tmp_path: Path, rows: int) -> None:
    """The version that is returned goes into a cut: it must not be a stranger's, whether or not files are put together."""
    state = _table(tmp_path, rows)
    write_deltalake(tmp_path, pa.table({"v": [99]}), mode="append")
    if rows == 1:
        assert SmallFiles(NO_SPARK, state, "v").optimize(1, "{}") == 0
    else:
        with pytest.raises(TransientError, match="someone else committed to the table meanwhile"):
            SmallFiles(NO_SPARK, state, "v").optimize(1, "{}")
    assert DeltaTable(tmp_path).version() == rows


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """Return a pool of memory that nobody has used before."""
    before, pool = pa.default_memory_pool(), pa.system_memory_pool()
    pa.set_memory_pool(pool)
    yield pool
    pa.set_memory_pool(before)


def test_values_that_files_have_once_are_not_held_as_often_as_they_are_repeated(
    tmp_path: Path, pool: pa.MemoryPool
) -> None:
    """A file of some kilobytes may have rows of gigabytes: its dictionary has each value once."""
    state: TableState | None = None
    texts = pa.array([f"{number}" * 10_000 for number in range(5)])
    for file in range(4):
        ids = pa.array(range(4_000 * file, 4_000 * (file + 1)), pa.int64())
        repeated = pa.DictionaryArray.from_arrays(pc.cast(pc.bit_wise_and(ids, 3), pa.int32()), texts)
        path = tmp_path / f"{file}.parquet"
        pq.write_table(pa.table({"id": ids, "v": repeated}, schema=SCHEMA), path)
        assert path.stat().st_size < 200_000
        entry = {"path": path.name, "size": path.stat().st_size, "stats": '{"numRecords": 4000}', "partitionValues": {}}
        state = _with_file(str(tmp_path), entry, state)
    assert state is not None
    used = pool.bytes_allocated()
    assert SmallFiles(NO_SPARK, state, "id", held_bytes_max=4 << 20).optimize(9, "{}") == 4
    assert pool.max_memory() - used < 150 << 20, "all rows take 160 MB, and as much again in their order"
    rows = DeltaRows.open(str(tmp_path), 4)
    assert rows.rows == 16_000
    read = pa.Table.from_batches(list(rows.batches(["id", "v"], 1_000)))
    assert sorted(read.column("id").to_pylist()) == list(range(16_000))
    first = pc.utf8_slice_codeunits(read.column("v"), 0, 1).to_pylist()
    assert first == [str(number & 3) for number in read.column("id").to_pylist()]
    assert pc.all(pc.equal(pc.binary_length(read.column("v")), 10_000)).as_py()


SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.dictionary(pa.int32(), pa.string()))])


def _with_file(path: str, entry: Mapping[str, object], state: TableState | None) -> TableState:
    """Commit a file."""
    change = PendingCommit(path, state)
    if state is None:
        change.set_metadata(metadata_of(new_fields({"id": "bigint", "v": "string"}), {}))
    change.add([AddedFile(entry)])
    return change.commit(None, LoggedOperation("WRITE", {}, {}))


def test_what_is_too_much_for_one_piece_is_put_together_in_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece has two files at least, and no row is lost."""
    # inside: a limit that takes no hundreds of MB to reach
    monkeypatch.setattr("lakeproof.lake.delta.files.optimize.IN_PROCESS_BYTES_MAX", 1)
    state = _table(tmp_path, 5)
    assert SmallFiles(NO_SPARK, state, "v").optimize(1, "{}") == 5
    assert len(read_state(str(tmp_path), 5).files) == 3
    assert sorted(DeltaTable(tmp_path).to_pyarrow_table().column("v").to_pylist()) == [0, 1, 2, 3, 4]
