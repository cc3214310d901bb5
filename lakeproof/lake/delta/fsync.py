"""Making files durable that Spark and Delta have written: neither syncs anything on a local disk.

Calling it at the right time belongs to `lakeproof.lake.cycle`: after the tables' commits, before the cut.

It syncs the files that the new commits name, whatever their age, in an order of which any prefix is a correct state: data
files and deletion vectors with their folders, then commits, then the log's other files of those versions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from lakeproof.errors import LakeError
from lakeproof.lake.delta.files import files_of_commit
from lakeproof.lake.delta.log import LOG, commit_file, newest_version
from lakeproof.lake.delta.unnamed_commits import NUMBERED, sync

_LAST_CHECKPOINT = ("_last_checkpoint", "._last_checkpoint.crc")


def sync_commits(tables: Mapping[str, int], root: str) -> int:
    """Sync the newer files of Delta tables (URL → the version that is durable already), and folders up to that of `root`.

    Returns the number of files. Raises LakeError if a file that a commit names is missing.
    """
    fresh = {path: range(durable + 1, newest_version(path) + 1) for path, durable in tables.items()}
    fresh = {path: versions for path, versions in fresh.items() if versions}
    data = [file for path, versions in fresh.items() for file in _data_files(path, versions)]
    commits = [commit_file(path, version) for path, versions in fresh.items() for version in versions]
    others = [file for path, versions in fresh.items() for file in _log_files(path, versions)]
    synced = _sync_all(data)
    _sync_folders({file.parent for file in data}, Path(root))
    synced += _sync_all(commits)
    synced += _sync_all(others)
    _sync_folders({file.parent for file in commits}, Path(root))
    return synced


def sync_folder(folder: str, root: str) -> None:
    """Sync every file below a folder of plain files, and folders up to that of `root`."""
    files = [Path(place) / name for place, _, names in os.walk(folder) for name in names]
    _sync_all(files)
    _sync_folders({Path(folder), *(file.parent for file in files)}, Path(root))


def _data_files(path: str, versions: Iterable[int]) -> list[Path]:
    """Return the files that these commits added and did not remove again."""
    names: dict[str, None] = {}
    for version in versions:
        removed, added = files_of_commit(commit_file(path, version))
        for name in removed:
            names.pop(name, None)
        for file in added:
            names |= {file.path: None} | ({} if file.vector is None else {file.vector: None})
    return [Path(path) / name for name in names]


def _log_files(path: str, versions: range) -> list[Path]:
    """Return checksums, checkpoints and other files with these numbers, and the pointer to the newest checkpoint."""
    log = Path(path) / LOG
    named = []
    for name in sorted(entry.name for entry in log.iterdir() if entry.is_file()):
        match = NUMBERED.fullmatch(name)
        if name in _LAST_CHECKPOINT or (match is not None and int(match[1]) in versions):
            named.append(log / name)
    commits = {commit_file(path, version) for version in versions}
    return [file for file in named if file not in commits]


def _sync_all(files: Iterable[Path]) -> int:
    synced = 0
    for file in files:
        try:
            sync(file)
        except FileNotFoundError:
            raise LakeError(str(file), "a commit names it, and it is missing", "run it again") from None
        beside = file.with_name(f".{file.name}.crc")
        if beside.exists():
            sync(beside)
        synced += 1
    return synced


def _sync_folders(folders: Iterable[Path], root: Path) -> None:
    """Sync the deepest first: a name is useless before the file that it names is durable."""
    up = {p for folder in folders for p in (folder, *folder.parents) if p == root or root in p.parents}
    for folder in sorted(up, key=lambda p: (-len(p.parts), p)):
        sync(folder)
