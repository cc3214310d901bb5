"""Finds the files that hold a table's changes in a range, counts their rows, and verifies that they are as written.

The counts of whole files are in the manifests; a file is read only if a range has a part of it, and Arrow is imported only
then: a plan, which sensors make at each tick, mostly needs none. What is in the rows is for `lakeproof.lake`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakeproof.change_counts import ChangeCounts
from lakeproof.errors import BEGIN_AGAIN, LakeError
from lakeproof.hidden_columns import COMMIT_NUMBER, COMMIT_TIME, LSN, OP, UNCHANGED
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.manifest import LogicalMessageFile, Manifest, SegmentFile
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.storage.store import NotFoundError, Store
from lakeproof.values.commit_times import of_number

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_READ_BYTES = 1 << 20
# The most bytes of one table's files that are kept after they were read to be verified; `compaction.threads` at a time.
VERIFIED_BYTES_MAX = 8 << 20
_OPS = {"insert": "inserts", "update": "updates", "delete": "deletes", "truncate": "truncates", "before": "befores"}
_REMEDY = f"restore the file from a backup, or {BEGIN_AGAIN}"


@dataclass(frozen=True, slots=True)
class Slice:
    """A data file, and whether a range takes all its rows (`whole`) or only those with positions in the range.

    `number` is the segment's, `first_ordinal` the `_lp_ord` of its first row. `data` are the file's bytes, if they are kept.
    """

    chain: Chain
    number: int
    first_ordinal: int
    file: SegmentFile
    whole: bool
    data: bytes | None = field(default=None, repr=False, compare=False)

    @property
    def url(self) -> str:
        """The URL at which Spark reads the file."""
        return file_url(self.chain, self.file)

    def open(self) -> AbstractContextManager[pq.ParquetFile]:
        """Open the file without Spark; raises as `open_file`."""
        from lakeproof.storage.parquet import parquet_in_memory

        return open_file(self.chain, self.file) if self.data is None else parquet_in_memory(self.data)


def slices(chain: Chain, start: Lsn, end: Lsn, table: TableName | None = None) -> Iterator[Slice]:
    """Yield the files with rows in (start, end], of one table or of all, in the chain's order."""
    for manifest in chain.between(start, end):
        whole = start <= manifest.start_lsn and manifest.end_lsn <= end
        for file in manifest.files:
            if table is None or file.table == table:
                yield Slice(chain, manifest.number, manifest.first_ordinal, file, whole)


def file_url(chain: Chain, file: SegmentFile | LogicalMessageFile) -> str:
    """Return the URL at which Spark reads a data file."""
    return chain.lake.url(_key(chain, file))


@contextmanager
def open_file(chain: Chain, file: SegmentFile | LogicalMessageFile) -> Iterator[pq.ParquetFile]:
    """Open a data file; raises LakeError if it is missing, and Arrow's errors if it is damaged."""
    from lakeproof.storage.parquet import parquet_file

    key = _key(chain, file)
    try:
        with parquet_file(chain.lake.store, key) as opened:
            yield opened
    except NotFoundError:
        raise LakeError(f"segment file {chain.lake.url(key)}", "it is missing", _REMEDY) from None


def verify_files(chain: Chain, manifest: Manifest) -> None:
    """Read every file of a segment; raises LakeError for one that is missing, cut short or changed."""
    for file in manifest.named:
        verify_file(chain, file)


def verify_file(chain: Chain, file: SegmentFile | LogicalMessageFile) -> None:
    """Read one data file and compare its size and checksum with the manifest's; raises LakeError."""
    key = _key(chain, file)
    verify(chain.lake.store, key, f"segment file {chain.lake.url(key)}", file.bytes, file.sha256)


def verified(pieces: Sequence[Slice]) -> list[Slice]:
    """Return the slices of one table after their files were compared with the manifests; raises LakeError as `verify_file`.

    Small files are read this once, and keep their bytes, `VERIFIED_BYTES_MAX` of a table: on an object store each opening
    is a request.
    """
    result, left = list[Slice](), VERIFIED_BYTES_MAX
    for piece in pieces:
        file, key = piece.file, _key(piece.chain, piece.file)
        if file.bytes > left:
            verify_file(piece.chain, file)
            result.append(piece)
            continue
        left -= file.bytes
        thing = f"segment file {piece.url}"
        try:
            data = piece.chain.lake.store.get(key)
        except NotFoundError:
            raise LakeError(thing, "it is missing", _REMEDY) from None
        _compare(thing, (len(data), hashlib.sha256(data).hexdigest()), (file.bytes, file.sha256))
        result.append(replace(piece, data=data))
    return result


def verify(store: Store, key: str, thing: str, size: int, sha256: str) -> None:
    """Read the file `key` and compare its size and SHA-256; raises LakeError about `thing` if it has changed."""
    digest = hashlib.sha256()
    length = 0
    try:
        with store.open(key) as opened:
            while data := opened.read(_READ_BYTES):
                digest.update(data)
                length += len(data)
    except NotFoundError:
        raise LakeError(thing, "it is missing", _REMEDY) from None
    _compare(thing, (length, digest.hexdigest()), (size, sha256))


def _compare(thing: str, read: tuple[int, str], written: tuple[int, str]) -> None:
    """Raise LakeError if a file's bytes and checksum are not those of its manifest."""
    if read[0] != written[0]:
        raise LakeError(thing, f"it has {read[0]} bytes, its manifest says {written[0]}", _REMEDY)
    if read[1] != written[1]:
        raise LakeError(thing, "its checksum is not the one its manifest says", _REMEDY)


def _key(chain: Chain, file: SegmentFile | LogicalMessageFile) -> str:
    return f"{chain.lake.paths.landing(chain.incarnation)}/{file.path}"


def count_changes(slices: Sequence[Slice], start: Lsn, end: Lsn) -> ChangeCounts:
    """The counts of the rows in (start, end]."""
    total = ChangeCounts()
    for piece in slices:
        if piece.whole:
            total += piece.file.counts
        else:
            total += _count_part(piece, start, end)
    return total


def newest_row(chain: Chain, file: SegmentFile, end: Lsn) -> Lsn:
    """Return the position of a file's newest row up to `end`; zero if it has none."""
    import pyarrow.compute as pc

    newest = (pc.max(part.column(LSN)).as_py() for part in _parts(open_file(chain, file), [LSN], Lsn.ZERO, end))
    return Lsn(max((lsn for lsn in newest if lsn is not None), default=0))


def last_commit(slices: Sequence[Slice], start: Lsn, end: Lsn) -> int | None:
    """Return the greatest commit time (µs since 1970, without a limit) of the rows in (start, end], read from the files."""
    import pyarrow.compute as pc

    parts = (part for piece in slices for part in _parts(piece.open(), [LSN, COMMIT_TIME, COMMIT_NUMBER], start, end))
    times = []
    for part in parts:
        time, number = (pc.max(part.column(name)) for name in (COMMIT_TIME, COMMIT_NUMBER))
        times += [time.value] if time.is_valid else []
        times += [of_number(number.as_py())] if number.is_valid else []
    return max(times, default=None)


def in_range_mask(lsn: pa.Array, start: Lsn, end: Lsn) -> pa.Array:
    """Return which values of an Arrow column of positions are in (start, end]."""
    import pyarrow.compute as pc

    return pc.and_(pc.greater(lsn, int(start)), pc.less_equal(lsn, int(end)))


def _count_part(piece: Slice, start: Lsn, end: Lsn) -> ChangeCounts:
    import pyarrow as pa
    import pyarrow.compute as pc

    total = ChangeCounts()
    for part in _parts(piece.open(), [LSN, OP, UNCHANGED], start, end):
        counted = pc.value_counts(part.column(OP).cast(pa.string())).to_pylist()
        numbers = {_OPS[c["values"]]: int(c["counts"]) for c in counted}
        unchanged = part.num_rows - part.column(UNCHANGED).null_count
        total += ChangeCounts(**numbers, unchanged=unchanged)
    return total


def _parts(
    opening: AbstractContextManager[pq.ParquetFile], columns: list[str], start: Lsn, end: Lsn
) -> Iterator[pa.RecordBatch]:
    """Yield one batch at a time: a file may hold one transaction of any size."""
    with opening as file:
        for batch in file.iter_batches(columns=columns):
            yield batch.filter(in_range_mask(batch.column(LSN), start, end))
