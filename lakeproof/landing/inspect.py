"""Looking inside one file of the landing, for a person: a manifest, a data file, or a whole chain.

Rows' values are not shown: a data file is described by its columns, positions and counts.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeproof.errors import LakeError
from lakeproof.landing.chain import Chain, verify_chain
from lakeproof.landing.logical_messages import SCHEMA as NOTES
from lakeproof.landing.manifest import DataFile, NoteFile, parse
from lakeproof.landing.reader import verify_file, verify_files
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation
from lakeproof.storage.fields import time_text
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths

_BATCH_ROWS = 65_536
# Of prefixes and origins, the most frequent ones.
NAMES_MAX = 100


def inspect(path: Path) -> dict[str, Any]:
    """Describe a manifest, a data file or a landing's folder as a JSON object.

    Raises LakeError where it is none of them, or damaged. A landing's folder is verified wholly: every link and the
    checksum of every file.
    """
    path = path.absolute()
    if path.is_dir():
        return _chain(path)
    if not path.exists():
        raise LakeError(str(path), "there is no such file", "name a manifest, a data file or a landing's folder")
    if path.suffix == ".json":
        return _manifest(path)
    if path.suffix == ".parquet":
        return _data(path)
    raise LakeError(str(path), "it is neither .json nor .parquet", "name a manifest, a data file or a landing's folder")


def inspect_text(path: Path) -> str:
    """The same for reading: one `name: value` per line, lists indented below their name."""
    return "\n".join(_lines(inspect(path), ""))


def _manifest(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    manifest = parse(data, str(path))
    document: dict[str, Any] = json.loads(data)
    document["bytes_of_range"] = manifest.end_lsn - manifest.start_lsn
    document["missing_files"] = [f.path for f in manifest.named if not (path.parent.parent / f.path).is_file()]
    return document


def _data(path: Path) -> dict[str, Any]:
    described = _parquet(path)
    entry = _entry_of(path)
    described["manifest"] = "none names this file: it does not exist for a reader" if entry is None else str(entry[0])
    if entry is not None:
        if isinstance(entry[1], DataFile):
            described["table"] = str(entry[1].table)
            described["schema_id"] = entry[1].schema_id
        described["checksum"] = "right"
        verify_file(_chain_at(path.parent.parent), entry[1])
    return described


def _parquet(path: Path) -> dict[str, Any]:
    try:
        with pq.ParquetFile(path) as file:
            return _notes(file, path) if file.schema_arrow.equals(NOTES) else _rows(file, path)
    except (pa.ArrowException, KeyError, OSError) as error:
        raise LakeError(
            f"segment file {path}", f"it is damaged or not of this format ({type(error).__name__})", "restore it"
        ) from error


def _rows(file: pq.ParquetFile, path: Path) -> dict[str, Any]:
    operations: Counter[str] = Counter()
    positions: list[int] = []
    with_text = unchanged = 0
    for batch in file.iter_batches(_BATCH_ROWS, columns=["_lp_lsn", "_lp_op", "_lp_text", "_lp_unchanged"]):
        operations.update(batch.column("_lp_op").cast(pa.string()).to_pylist())
        lsn = batch.column("_lp_lsn")
        positions += [lsn[0].as_py(), lsn[-1].as_py()]
        with_text += len(batch) - batch.column("_lp_text").null_count
        unchanged += len(batch) - batch.column("_lp_unchanged").null_count
    return {
        **_size(file, path),
        "first_lsn": str(Lsn(positions[0])) if positions else None,
        "last_lsn": str(Lsn(positions[-1])) if positions else None,
        "operations": dict(sorted(operations.items())),
        "rows_with_text": with_text,
        "rows_with_unchanged": unchanged,
        "columns": {f.name: str(f.type) for f in file.schema_arrow},
    }


def _notes(file: pq.ParquetFile, path: Path) -> dict[str, Any]:
    """Messages by prefix and origins by name; contents are values, and are not shown."""
    found: Counter[str] = Counter()
    for batch in file.iter_batches(_BATCH_ROWS, columns=["kind", "name", "_lp_xid"]):
        kinds, names, xids = (batch.column(name).to_pylist() for name in ("kind", "name", "_lp_xid"))
        for kind, name, xid in zip(kinds, names, xids, strict=True):
            found[f"{kind} {name}" + (" (of no transaction)" if xid is None else "")] += 1
    return {
        **_size(file, path),
        "notes": dict(found.most_common(NAMES_MAX)),
        "other_names": max(0, len(found) - NAMES_MAX),
    }


def _size(file: pq.ParquetFile, path: Path) -> dict[str, Any]:
    return {
        "rows": file.metadata.num_rows,
        "row_groups": file.metadata.num_row_groups,
        "bytes": path.stat().st_size,
    }


def _entry_of(path: Path) -> tuple[Path, DataFile | NoteFile] | None:
    """The manifest beside it that names a data file."""
    number = path.name.partition("-")[0]
    place = path.parent.parent / "manifests" / f"{number}.json"
    if not place.is_file():
        return None
    manifest = parse(place.read_bytes(), str(place))
    for file in manifest.named:
        if file.path == f"{path.parent.name}/{path.name}":
            return place, file
    return None


def _chain_at(folder: Path) -> Chain:
    """Open the chain in `<lake>/<source>/landing/<incarnation>`."""
    if not (folder / "manifests").is_dir() or folder.parent.name != "landing" or not folder.name.isdigit():
        raise LakeError(str(folder), "it is not the folder of a landing", "name <lake>/<source>/landing/<incarnation>")
    source = folder.parent.parent
    lake = str(source.parent)
    return Chain.open(open_store(lake), LakePaths(lake, source.name), Incarnation(int(folder.name)))


def _chain(folder: Path) -> dict[str, Any]:
    chain = _chain_at(folder)
    links = verify_chain(chain)
    rows = notes = files = size = 0
    tables: Counter[str] = Counter()
    for manifest in chain.manifests():
        verify_files(chain, manifest)
        rows += manifest.rows
        files += len(manifest.files) + len(manifest.notes)
        notes += sum(f.rows for f in manifest.notes)
        size += sum(f.bytes for f in manifest.named)
        tables.update({str(f.table): f.changes for f in manifest.files})
    last = chain.newest.last_commit_us
    return {
        "incarnation": int(chain.incarnation),
        "start_lsn": str(chain.head.start_lsn),
        "end_lsn": str(chain.end),
        "links": links,
        "files": files,
        "rows": rows,
        "notes": notes,
        "bytes": size,
        "newest_commit_time": time_text(last),
        "changes": dict(sorted(tables.items())),
        "checked": "every link and the checksum of every file",
    }


def _lines(value: dict[str, Any], indent: str) -> list[str]:
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
