"""Finds the files that hold a table's changes in a range, and verifies that they are as written.

Rows are not read here, but in `lakeproof.lake`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from lakeproof.errors import BEGIN_AGAIN, LakeError
from lakeproof.landing.chain import Chain
from lakeproof.landing.manifest import LogicalMessageFile, Manifest, SegmentFile
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.storage.store import NotFoundError, Store

_READ_BYTES = 1 << 20
_REMEDY = f"restore the file from a backup, or {BEGIN_AGAIN}"


@dataclass(frozen=True, slots=True)
class Slice:
    """A data file, and whether a range takes all its rows (`whole`) or only those with positions in the range.

    `number` is the segment's; Spark and pyarrow read the file at `url`.
    """

    number: int
    file: SegmentFile
    url: str
    whole: bool


def slices(chain: Chain, start: Lsn, end: Lsn, table: TableName | None = None) -> Iterator[Slice]:
    """Yield the files with rows in (start, end], of one table or of all, in the chain's order."""
    for manifest in chain.between(start, end):
        whole = start <= manifest.start_lsn and manifest.end_lsn <= end
        for file in manifest.files:
            if table is None or file.table == table:
                yield Slice(manifest.number, file, file_url(chain, file), whole)


def file_url(chain: Chain, file: SegmentFile | LogicalMessageFile) -> str:
    """Return the URL at which Spark and pyarrow read a data file."""
    return chain.paths.url(_key(chain, file))


def verify_files(chain: Chain, manifest: Manifest) -> None:
    """Read every file of a segment; raises LakeError for one that is missing, cut short or changed."""
    for file in manifest.named:
        verify_file(chain, file)


def verify_file(chain: Chain, file: SegmentFile | LogicalMessageFile) -> None:
    """Read one data file and compare its size and checksum with the manifest's; raises LakeError."""
    key = _key(chain, file)
    verify(chain.store, key, f"segment file {chain.paths.url(key)}", file.bytes, file.sha256)


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
    if length != size:
        raise LakeError(thing, f"it has {length} bytes, its manifest says {size}", _REMEDY)
    if digest.hexdigest() != sha256:
        raise LakeError(thing, "its checksum is not the one its manifest says", _REMEDY)


def _key(chain: Chain, file: SegmentFile | LogicalMessageFile) -> str:
    return f"{chain.paths.landing(chain.incarnation)}/{file.path}"
