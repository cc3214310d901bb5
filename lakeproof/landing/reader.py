"""Finding rows in the landing: which files hold a table's changes in a range, and whether they are what was written.

What is done with the rows belongs to `lakeproof.lake`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from lakeproof.errors import BEGIN_AGAIN, LakeError
from lakeproof.landing.chain import Chain
from lakeproof.landing.manifest import DataFile, Manifest, NoteFile
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.storage.store import NotFoundError, Store

_READ_BYTES = 1 << 20
_REMEDY = f"restore the file from a backup, or {BEGIN_AGAIN}"


@dataclass(frozen=True, slots=True)
class Slice:
    """A data file of which a range takes all rows (`whole`) or those with its positions.

    `number` is the segment's, `url` the place for Spark and pyarrow.
    """

    number: int
    file: DataFile
    url: str
    whole: bool


def slices(chain: Chain, start: Lsn, end: Lsn, table: TableName | None = None) -> Iterator[Slice]:
    """The files with rows in (start, end], in the chain's order; of one table, or of all."""
    for manifest in chain.between(start, end):
        whole = start <= manifest.start_lsn and manifest.end_lsn <= end
        for file in manifest.files:
            if table is None or file.table == table:
                yield Slice(manifest.number, file, file_url(chain, file), whole)


def file_url(chain: Chain, file: DataFile | NoteFile) -> str:
    """Where Spark and pyarrow find a data file."""
    return chain.paths.url(_key(chain, file))


def verify_files(chain: Chain, manifest: Manifest) -> None:
    """Read every file of a segment; raises LakeError for one that is missing, cut short or changed."""
    for file in manifest.named:
        verify_file(chain, file)


def verify_file(chain: Chain, file: DataFile | NoteFile) -> None:
    """Read one data file and compare its size and checksum with the manifest's; raises LakeError."""
    key = _key(chain, file)
    verify(chain.store, key, f"segment file {chain.paths.url(key)}", file.bytes, file.sha256)


def verify(store: Store, key: str, thing: str, size: int, sha256: str) -> None:
    """Read the file `key` and compare its size and SHA-256; raises LakeError about `thing` where it is not what it was."""
    digest = hashlib.sha256()
    found = 0
    try:
        with store.open(key) as opened:
            while data := opened.read(_READ_BYTES):
                digest.update(data)
                found += len(data)
    except NotFoundError:
        raise LakeError(thing, "it is missing", _REMEDY) from None
    if found != size:
        raise LakeError(thing, f"it has {found} bytes, its manifest says {size}", _REMEDY)
    if digest.hexdigest() != sha256:
        raise LakeError(thing, "its checksum is not the one its manifest says", _REMEDY)


def _key(chain: Chain, file: DataFile | NoteFile) -> str:
    return f"{chain.paths.landing(chain.incarnation)}/{file.path}"
