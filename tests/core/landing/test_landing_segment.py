"""Segments: rows numbered over all files, bounded files, verified bytes, a look inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeproof.errors import InvariantError, LakeError
from lakeproof.landing.chain import Chain
from lakeproof.landing.inspect import inspect, inspect_text
from lakeproof.landing.segments.manifest import Manifest, ManifestKind, SegmentFile
from lakeproof.landing.segments.reader import file_url, slices, verify_file, verify_files
from lakeproof.landing.segments.segment import SegmentLimits, SegmentWriter
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.storage.local import LocalStore
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import NewFile
from tests.core.landing.landing_segments import WRITER, add_segment, chain_in, inserts, new_chain, reopen, version


class _CountingStore(LocalStore):
    """A store that notes how many of its files are open whenever one more is begun."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.open_now: list[int] = []
        self._opened: list[NewFile] = []

    def create(self, key: str, *, durable: bool = True) -> NewFile:
        self._opened.append(super().create(key, durable=durable))
        self.open_now.append(sum(not file.closed for file in self._opened))
        return self._opened[-1]


class _FailingStore(LocalStore):
    """A store whose reply to a put is an error, although it was done."""

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = True, follows: str | None = None) -> None:
        super().put_if_absent(key, data, durable=durable, follows=follows)
        raise OSError(5, "Input/output error")


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    """A chain that has just begun."""
    return new_chain(tmp_path / "lake")


def _places(chain: Chain, manifest: Manifest, file: SegmentFile) -> list[int]:
    """The places of a file's rows in its segment."""
    return [n - manifest.first_ordinal for n in pq.read_table(file_url(chain, file))["_lp_ord"].to_pylist()]


def test_rows_are_numbered_over_all_batches_and_tables(chain: Chain) -> None:
    """`_lp_ord` of a batch begins at 0; a segment counts on."""
    writer = SegmentWriter(chain, WRITER)
    for lsn, name in ((1100, "orders"), (1200, "lines"), (1300, "orders")):
        writer.add(inserts(version(name, oid=len(name)), lsn, 4))
    manifest = writer.finish(Lsn(1300))
    assert (manifest.kind, manifest.rows, manifest.transactions) == (ManifestKind.SEGMENT, 12, 3)
    assert (manifest.first_commit_us, manifest.last_commit_us) == (1100, 1300)
    rows = {f.table.name: _places(chain, manifest, f) for f in manifest.files}
    assert rows == {"lines": [4, 5, 6, 7], "orders": [0, 1, 2, 3, 8, 9, 10, 11]}


def test_one_file_holds_one_schema_version(chain: Chain) -> None:
    """A table whose schema changes inside a segment has two files."""
    writer = SegmentWriter(chain, WRITER)
    writer.add(inserts(version(kind="int4"), 1100, 2, announced=True))
    writer.add(inserts(version(name="orders2"), 1200, 2, announced=True))
    manifest = writer.finish(Lsn(1200))
    assert [f.schema_id for f in manifest.files] == [version().id, version(name="orders2").id]
    assert [s.version.id for s in manifest.schemas] == [version().id, version(name="orders2").id]


def test_files_have_the_columns_of_the_format_page(chain: Chain) -> None:
    """Types as Spark will find them, zstd, the dictionary kept."""
    add_segment(chain, 2000)
    with pq.ParquetFile(file_url(chain, chain.newest.files[0])) as file:
        assert file.metadata.row_group(0).column(0).compression == "ZSTD"
        types = {f.name: f.type for f in file.schema_arrow}
    assert types["_lp_op"] == pa.dictionary(pa.int8(), pa.string())
    assert types["_lp_commit_time"] == pa.timestamp("us", "UTC")
    assert types["_lp_unchanged"].value_type == pa.int16()
    assert [t for n, t in types.items() if n in ("_lp_lsn", "_lp_seq", "_lp_ord", "_lp_xid")] == [pa.int64()] * 4


def test_open_files_are_bounded_however_many_tables_there_are(tmp_path: Path) -> None:
    """The one used least recently is finished; a table that comes again gets another file."""
    store = _CountingStore(tmp_path / "lake")
    chain = chain_in(store)
    writer = SegmentWriter(chain, WRITER, SegmentLimits(open_files=3, group_rows=2))
    for lsn in range(1100, 1140):
        writer.add(inserts(version(f"t{lsn % 8}", oid=lsn % 8 + 1), lsn, 2))
    manifest = writer.finish(Lsn(1139))
    assert max(store.open_now) == 3
    assert manifest.rows == 80
    rows = [n for f in manifest.files for n in _places(chain, manifest, f)]
    assert sorted(rows) == list(range(80))


def test_waiting_rows_are_bounded_in_bytes(chain: Chain) -> None:
    """The bound holds for all tables together."""
    writer = SegmentWriter(chain, WRITER, SegmentLimits(buffered_bytes=10_000))
    for lsn in range(1100, 1200):
        writer.add(inserts(version(f"t{lsn % 20}", oid=lsn % 20 + 1), lsn, 20))
        waiting = sum(part.waiting_bytes for part in writer._parts.values())
        assert waiting == writer._waiting_bytes
        assert waiting + writer._thread.size <= 10_000
    assert writer.finish(Lsn(1199)).rows == 2000


def test_a_change_that_came_again_is_refused(chain: Chain) -> None:
    """A segment that the chain has is never written twice."""
    add_segment(chain, 2000)
    with pytest.raises(InvariantError, match="came again"):
        SegmentWriter(chain, WRITER).add(inserts(version(), 2000, 1))


def test_an_abandoned_segment_leaves_nothing(chain: Chain) -> None:
    """The open file and the finished file are both removed."""
    writer = SegmentWriter(chain, WRITER, SegmentLimits(open_files=1, group_rows=1))
    writer.add(inserts(version("a", 1), 1100, 1))
    writer.add(inserts(version("b", 2), 1200, 1))
    writer.abandon()
    assert chain.lake.store.list(chain.lake.paths.data(chain.incarnation)) == []


def test_slices_say_which_files_and_whether_wholly(chain: Chain) -> None:
    """A range may end inside a segment."""
    for end in (2000, 3000, 4000):
        add_segment(chain, end)
    actual = [(s.number, s.whole) for s in slices(chain, Lsn(2000), Lsn(3500))]
    assert actual == [(2, True), (3, False)]
    assert not list(slices(chain, Lsn(0), Lsn(9000), TableName("public", "other")))


@pytest.mark.parametrize("damage", ["gone", "cut", "changed"])
def test_a_damaged_data_file_is_named(chain: Chain, damage: str) -> None:
    """The error has the file's path, a reason and a remedy."""
    add_segment(chain, 2000)
    file = chain.newest.files[0]
    path = Path(file_url(chain, file))
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:-1] if damage == "cut" else data[:50] + b"?" + data[51:])
    with pytest.raises(LakeError, match=rf"{path.name}.*(missing|bytes|checksum).*restore"):
        verify_file(chain, file)
    with pytest.raises(LakeError, match=path.name):
        inspect(Path(chain.lake.url(chain.lake.paths.landing(chain.incarnation))))


def test_inspect_describes_a_manifest_a_file_and_a_landing(chain: Chain) -> None:
    """Counts and positions, no values of rows."""
    add_segment(chain, 2000)
    landing = Path(chain.lake.url(chain.lake.paths.landing(chain.incarnation)))
    assert inspect(landing)["rows"] == 3
    described = inspect(landing / chain.newest.files[0].path)
    assert described["operations"] == {"insert": 3}
    assert described["checksum"] == "right"
    text = inspect_text(landing / "manifests" / f"{1:020d}.json")
    assert "end_lsn: 0/7D0" in text
    assert "note 1" not in text + inspect_text(landing / chain.newest.files[0].path)


@pytest.mark.parametrize("name", ["x.json", "x.parquet", "x.txt", "gone", "folder"])
def test_inspect_refuses_what_it_does_not_know(tmp_path: Path, name: str) -> None:
    """Every unknown file gets the same message."""
    if name == "folder":
        (tmp_path / name).mkdir()
    elif name != "gone":
        (tmp_path / name).write_bytes(b"PAR1")
    with pytest.raises(LakeError, match=name):
        inspect(tmp_path / name)


def test_a_manifest_that_may_stand_keeps_its_files(tmp_path: Path) -> None:
    """The folder could not be synced after the manifest had its name: abandoning must not take its files away."""
    new_chain(tmp_path / "lake")
    chain = Chain.open(SourceLake(_FailingStore(tmp_path / "lake"), LakePaths("shop")), Incarnation(1))
    writer = SegmentWriter(chain, WRITER)
    writer.add(inserts(version(), 2000, 3, announced=True))
    with pytest.raises(OSError, match="Input/output"):
        writer.finish(Lsn(2000))
    writer.abandon()
    for file in reopen(chain).newest.files:
        verify_file(chain, file)


def test_a_segment_of_very_many_tables_looks_at_each_of_them_a_few_times(tmp_path: Path) -> None:
    """A scan of all tables for each would be too slow with 10,000; there are more files than may be open."""
    chain = new_chain(tmp_path / "lake")
    segment = SegmentWriter(chain, WRITER, SegmentLimits(buffered_bytes=16_000, open_files=4))
    parts = _Counting(segment._parts)
    segment._parts = parts
    count = 60
    for turn in range(2):
        for number in range(count):
            segment.add(inserts(version(f"t{number}", 20_000 + number), 2000 + turn, 3, announced=not turn))
    manifest = segment.finish(Lsn(2002))
    assert manifest.rows == 2 * 3 * count
    assert {file.table.name for file in manifest.files} == {f"t{number}" for number in range(count)}
    verify_files(chain, manifest)
    # Each of the two passes sorts them when half of the limit is to be freed; one by one it would be 60 times 60.
    assert parts.looked < count * count // 2


class _Counting(dict[str, Any]):
    """Return the number of parts that a walk through all of them sees."""

    looked = 0

    def values(self) -> Any:
        self.looked += len(self)
        return super().values()

    def items(self) -> Any:
        self.looked += len(self)
        return super().items()
