"""Making files durable that Spark and Delta have written: neither syncs anything on a local disk.

Calling it at the right time belongs to `lakeproof.lake.cycle`: after the tables' commits, before the cut.

It syncs the files that the new commits name, whatever their age, in an order of which any prefix is a correct state: data
files and deletion vectors with their folders, then commits, then the log's other files of those versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakeproof.errors import LakeError
from lakeproof.lake.delta.files.needed import files_of_commit
from lakeproof.lake.delta.log.checkpoint import LAST_CHECKPOINT, checkpoint_name
from lakeproof.lake.delta.log.cleaned import NUMBERED
from lakeproof.lake.delta.log.commits import (
    ENGINE,
    LOG,
    checksum_name,
    commit_name,
    last_following,
    log_files,
    read_actions,
)
from lakeproof.storage.folder import Folder
from lakeproof.storage.store import NotFoundError, Store

_LAST_CHECKPOINT = ("_last_checkpoint", "._last_checkpoint.crc")


def sync_commits(tables: Mapping[str, int], store: Store) -> int:
    """Sync the newer files of Delta tables (URL → the version that is durable already) in a store; return their number.

    Raises LakeError if a file that a commit names is missing. Nothing is read or done if the store's writes are durable.
    """
    if store.writes_are_durable:
        return 0
    fresh = {path: range(durable + 1, last_following(path, durable) + 1) for path, durable in tables.items()}
    fresh = {path: versions for path, versions in fresh.items() if versions}
    data = [key for path, versions in fresh.items() for key in _data_files(path, versions)]
    commits = [key for path, versions in fresh.items() for key in _keys(path, map(commit_name, versions))]
    others = [key for path, versions in fresh.items() for key in _log_files(path, versions)]
    try:
        store.sync_files(data)
        store.sync_files([*commits, *others])
    except NotFoundError as error:
        raise LakeError(store.url(error.key), "a commit names it, and it is missing", "run it again") from None
    return len(data) + len(commits) + len(others)


def sync_folder(folder: Folder) -> None:
    """Sync every file below a folder of plain files, and folders up to the store's root."""
    if not folder.store.writes_are_durable:
        folder.store.sync_files([folder.key_of(file.key) for file in folder.files()])


def _keys(path: str, names: Iterable[str]) -> list[str]:
    table = Folder.at(path)
    return [table.key_of(name) for name in names]


def _data_files(path: str, versions: Iterable[int]) -> list[str]:
    """Return the keys of the files that these commits added and did not remove again, with their vectors."""
    vectors: dict[str, str | None] = {}
    table = Folder.at(path)
    for version in versions:
        removed, added = files_of_commit(table, commit_name(version))
        for name in removed:
            vectors.pop(name, None)
        vectors |= {file.path: file.vector for file in added}
    names = dict.fromkeys([*vectors, *(vector for vector in vectors.values() if vector is not None)])
    return _keys(path, names)


def _log_files(path: str, versions: range) -> list[str]:
    """Return the keys of checksums, checkpoints and others with these numbers, and of the pointer to a checkpoint."""
    table = Folder.at(path)
    if all(_is_ours(table, version) for version in versions):
        notes = [note for version in versions for note in (checksum_name(version), checkpoint_name(version))]
        return [key for key in _keys(path, [*notes, LAST_CHECKPOINT]) if table.store.exists(key)]
    named = []
    for name in sorted(log_files(table, versions.start - 1)):
        match = NUMBERED.fullmatch(name)
        if name in _LAST_CHECKPOINT or (match is not None and int(match[1]) in versions):
            named.append(f"{LOG}/{name}")
    return _keys(path, [name for name in named if name not in set(map(commit_name, versions))])


def _is_ours(table: Folder, version: int) -> bool:
    """True if this engine has made a commit: then it has these notes and no others."""
    actions = read_actions(table, commit_name(version))
    return any(kind == "commitInfo" and action.get("engineInfo") == ENGINE for kind, action in actions)
