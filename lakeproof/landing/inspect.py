"""Describes a manifest, a data file or a whole chain of the landing for a person.

Values of rows are not shown: a data file is described by its columns, positions and counts.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq

from lakeproof.config.location import LakeLocation, ObjectPlace
from lakeproof.errors import LakeError
from lakeproof.hidden_columns import LSN, OP, TEXT, UNCHANGED, XID
from lakeproof.landing.chain import Chain, verify_chain
from lakeproof.landing.logical_messages import SCHEMA as LOGICAL_MESSAGES
from lakeproof.landing.segments.manifest import LogicalMessageFile, SegmentFile, parse
from lakeproof.landing.segments.reader import verify_file, verify_files
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation
from lakeproof.storage.open import open_store
from lakeproof.storage.parquet import parquet_file
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import Store
from lakeproof.storage.times import time_text

_BATCH_ROWS = 65_536
# Of prefixes and origins, only the most frequent are shown.
NAMES_MAX = 100


@dataclass(frozen=True, slots=True)
class _File:
    """A file, or a folder, by its key in the store that was opened for it."""

    store: Store
    key: PurePosixPath

    @classmethod
    def at(cls, place: LakeLocation | Path) -> _File:
        """Return it; its store begins at the disk's root, or the bucket's."""
        if isinstance(place, Path):
            return cls(open_store("/"), PurePosixPath(str(place.absolute()).lstrip("/")))
        named = ObjectPlace.parse(place.url)
        if named is None:
            return cls.at(Path(place.url))
        root = str(replace(named, prefix=""))
        return cls(open_store(LakeLocation(root, place.storage)), PurePosixPath(named.prefix))

    def __str__(self) -> str:
        """Return its path or URL."""
        return self.store.url(str(self.key))

    def to(self, name: PurePosixPath | str) -> _File:
        """Return another file by its key."""
        return _File(self.store, PurePosixPath(name))

    @property
    def is_file(self) -> bool:
        """True if it exists and is no folder."""
        return self.store.exists(str(self.key))

    def read(self) -> bytes:
        """Return its bytes."""
        return self.store.get(str(self.key))


def inspect(place: LakeLocation | Path) -> dict[str, object]:
    """Describe a manifest, a data file or a landing's folder as a JSON object.

    Raises LakeError if it is none of these, or damaged. A landing's folder is verified completely: every manifest and the
    checksum of every file.
    """
    file = _File.at(place)
    if not file.is_file:
        if not file.store.folders(str(file.key)) and not file.store.list(str(file.key)):
            raise LakeError(str(file), "it does not exist", "name a manifest, a data file or a landing's folder")
        return _chain(file)
    if file.key.suffix == ".json":
        return _manifest(file)
    if file.key.suffix == ".parquet":
        return _data(file)
    raise LakeError(str(file), "it is neither .json nor .parquet", "name a manifest, a data file or a landing's folder")


def inspect_text(place: LakeLocation | Path) -> str:
    """Describe it as text: one `name: value` per line, lists indented below their name."""
    return "\n".join(_lines(inspect(place), ""))


def _manifest(file: _File) -> dict[str, object]:
    data = file.read()
    manifest = parse(data, str(file))
    document: dict[str, object] = json.loads(data)
    document["bytes_of_range"] = manifest.end_lsn - manifest.start_lsn
    document["missing_files"] = [f.path for f in manifest.named if not file.to(file.key.parent.parent / f.path).is_file]
    return document


def _data(file: _File) -> dict[str, object]:
    described = _parquet(file)
    entry = _entry_of(file)
    described["manifest"] = (
        "no manifest names this file: it does not exist for a reader" if entry is None else str(entry[0])
    )
    if entry is not None:
        if isinstance(entry[1], SegmentFile):
            described["table"] = str(entry[1].table)
            described["schema_id"] = entry[1].schema_id
        described["checksum"] = "right"
        verify_file(_chain_at(file.to(file.key.parent.parent)), entry[1])
    return described


def _parquet(file: _File) -> dict[str, object]:
    try:
        with parquet_file(file.store, str(file.key)) as opened:
            described = _messages(opened) if opened.schema_arrow.equals(LOGICAL_MESSAGES) else _rows(opened)
            size = {
                "rows": opened.metadata.num_rows,
                "row_groups": opened.metadata.num_row_groups,
                "bytes": file.store.size(str(file.key)),
            }
            return {**size, **described}
    except (pa.ArrowException, KeyError, OSError) as error:
        raise LakeError(
            f"segment file {file}", f"it is damaged or not of this format ({type(error).__name__})", "restore it"
        ) from error


def _rows(file: pq.ParquetFile) -> dict[str, object]:
    operations: Counter[str] = Counter()
    positions: list[int] = []
    with_text = unchanged = 0
    for batch in file.iter_batches(_BATCH_ROWS, columns=[LSN, OP, TEXT, UNCHANGED]):
        operations.update(batch.column(OP).cast(pa.string()).to_pylist())
        lsn = batch.column(LSN)
        positions += [lsn[0].as_py(), lsn[-1].as_py()]
        with_text += len(batch) - batch.column(TEXT).null_count
        unchanged += len(batch) - batch.column(UNCHANGED).null_count
    return {
        "first_lsn": str(Lsn(positions[0])) if positions else None,
        "last_lsn": str(Lsn(positions[-1])) if positions else None,
        "operations": dict(sorted(operations.items())),
        "rows_with_text": with_text,
        "rows_with_unchanged": unchanged,
        "columns": {f.name: str(f.type) for f in file.schema_arrow},
    }


def _messages(file: pq.ParquetFile) -> dict[str, object]:
    """Describe messages by prefix and origins by name; contents are values, and are not shown."""
    names_seen: Counter[str] = Counter()
    for batch in file.iter_batches(_BATCH_ROWS, columns=["kind", "name", XID]):
        kinds, names, xids = (batch.column(name).to_pylist() for name in ("kind", "name", XID))
        for kind, name, xid in zip(kinds, names, xids, strict=True):
            names_seen[f"{kind} {name}" + (" (of no transaction)" if xid is None else "")] += 1
    return {
        "logical_messages": dict(names_seen.most_common(NAMES_MAX)),
        "other_names": max(0, len(names_seen) - NAMES_MAX),
    }


def _entry_of(data: _File) -> tuple[_File, SegmentFile | LogicalMessageFile] | None:
    """Return the manifest that names a data file, and its entry."""
    number = data.key.name.partition("-")[0]
    place = data.to(data.key.parent.parent / "manifests" / f"{number}.json")
    if not place.is_file:
        return None
    manifest = parse(place.read(), str(place))
    for file in manifest.named:
        if file.path == f"{data.key.parent.name}/{data.key.name}":
            return place, file
    return None


def _chain_at(folder: _File) -> Chain:
    """Open the chain in `<lake>/<source>/landing/<incarnation>`."""
    key = folder.key
    if key.parent.name != "landing" or not key.name.isdigit() or "manifests" not in folder.store.folders(str(key)):
        raise LakeError(str(folder), "it is not the folder of a landing", "name <lake>/<source>/landing/<incarnation>")
    source = key.parent.parent
    root = folder.store.location.url.rstrip("/")
    lake = replace(folder.store.location, url=f"{root}/{source.parent}")
    return Chain.open(SourceLake.open(lake, source.name), Incarnation(int(key.name)))


def _chain(folder: _File) -> dict[str, object]:
    chain = _chain_at(folder)
    manifests = verify_chain(chain)
    rows = messages = files = size = 0
    tables: Counter[str] = Counter()
    for manifest in chain.manifests():
        verify_files(chain, manifest)
        rows += manifest.rows
        files += len(manifest.files) + len(manifest.logical_messages)
        messages += sum(f.rows for f in manifest.logical_messages)
        size += sum(f.bytes for f in manifest.named)
        tables.update({str(f.table): f.counts.changes for f in manifest.files})
    last = chain.newest.last_commit_us
    return {
        "incarnation": int(chain.incarnation),
        "start_lsn": str(chain.head.start_lsn),
        "end_lsn": str(chain.end),
        "manifests": manifests,
        "files": files,
        "rows": rows,
        "logical_messages": messages,
        "bytes": size,
        "newest_commit_time": None if last is None else time_text(last),
        "changes": dict(sorted(tables.items())),
        "checked": "every manifest and the checksum of every file",
    }


def _lines(value: dict[str, object], indent: str) -> list[str]:
    lines: list[str] = []
    for name, item in value.items():
        if isinstance(item, dict):
            lines += [f"{indent}{name}:", *_lines(item, indent + "  ")]
        elif isinstance(item, list) and item and isinstance(item[0], dict):
            for i, part in enumerate(item):
                lines += [f"{indent}{name}[{i}]:", *_lines(part, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {json.dumps(item, ensure_ascii=False) if item is None else item}")
    return lines
