"""The files that a Delta table's versions need: which these are, from one version on, which can go, and making them durable.

Choosing the versions to keep belongs to `lakeproof.commands.maintain`, calling `sync_commits` at the right time to
`lakeproof.lake.cycle`: after the tables' commits, before the cut; reading what a commit says about itself to `log`.

Delta's own VACUUM decides by the age of a removal and by one version; here exactly those files are kept that kept cuts
name. Only the holder of the source's lease may remove any: nothing here knows the files of a commit that is being made. On
an object store a lease may pass to somebody else unnoticed, so it is checked between the listing and the first removal.

    log     the newest checkpoint at or before the oldest version that is needed, and everything after it
    files   the files of that version, and those that any later commit added, with their deletion vectors

On a local disk neither a commit nor what Spark writes is synced when it is made. What the new commits name is synced,
whatever its age, in an order of which any prefix is a correct state: data files and deletion vectors with their folders,
then commits, then the log's other files of those versions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakeproof.errors import LakeError
from lakeproof.lake.delta.files.data_files import DeltaFile, data_file, live_rows
from lakeproof.lake.delta.log.commits import (
    ENGINE,
    LOG,
    NUMBERED,
    POINTERS,
    Action,
    LogGapError,
    checkpoint_name,
    checksum_name,
    commit_name,
    last_following,
    log_files,
    read_actions,
)
from lakeproof.lake.delta.log.state import at_checkpoint, commits_after, listed_log, read_state
from lakeproof.landing.retention import SpaceReclaimed
from lakeproof.storage.folder import Folder
from lakeproof.storage.open import store_of
from lakeproof.storage.store import NotFoundError, Store


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files that a table needs from a version on: `newest` are those of its newest version, `needed` all paths.

    `checkpoint` is the version of the checkpoint that the first version is read from, -1 if there is none.
    """

    checkpoint: int
    newest: tuple[DeltaFile, ...]
    needed: frozenset[str]


@dataclass(frozen=True, slots=True)
class Unread:
    """A table that could not be read, and so keeps all its files: the reason, and the remedy."""

    reason: str
    remedy: str

    def __str__(self) -> str:
        """Return both, in one line."""
        return f"{self.reason}; it keeps what it has; {self.remedy}"


def counted_again(tables: Mapping[str, TableFiles]) -> int:
    """Return the bytes of the newest files of tables (by folder) beyond the first time that they are counted.

    A linked file has a name in several tables, or in one of them and the landing.
    """
    names: Counter[tuple[int, ...]] = Counter()
    links: dict[tuple[int, ...], tuple[int, int]] = {}
    for path, files in tables.items():
        table = Folder.at(path)
        for file in files.newest:
            shared = table.store.shared(table.key_of(file.path))
            if shared is not None:
                names[shared.identity] += 1
                links[shared.identity] = file.bytes, shared.names
    return sum(links[i][0] * (times - 1 + (links[i][1] > times)) for i, times in names.items())


def table_files(path: str, oldest: int, newest: int | None = None) -> TableFiles:
    """Read the log; raises LakeError if there is none, or if it is not whole from `oldest` to `newest` (default: `oldest`).

    Above `newest`, the last version that a cut names, it is read as far as possible: a power cut may leave any part of it.
    """
    named = oldest if newest is None else newest
    table = Folder.at(path)
    log = listed_log(table, oldest)
    if log.last < named:
        # Otherwise nothing would be needed, and all files of the table would be removed.
        raise LakeError(path, f"its log ends at version {log.last}, before version {named}", "restore it from a backup")
    replay, version = at_checkpoint(table, log), oldest
    for _ in commits_after(replay, path, log.checkpoint, oldest):
        pass
    needed = set(map(data_file, replay.files.values()))
    try:
        for _, actions in commits_after(replay, path, oldest, log.last):
            version += 1
            needed |= {data_file(action) for kind, action in actions if kind == "add"}
    except LogGapError:
        if version < named:
            raise
    paths = {file.path for file in needed} | {file.vector for file in needed if file.vector is not None}
    return TableFiles(log.checkpoint, tuple(map(data_file, replay.files.values())), frozenset(paths))


def files_at(path: str, version: int) -> tuple[DeltaFile, ...]:
    """Return the files of one version; raises LakeError if there is no log, or if it is not whole up to there."""
    return tuple(map(data_file, read_state(path, version).files.values()))


def rows_at(path: str, version: int) -> int | None:
    """Return the number of rows of one version, by the log alone; None if it does not say. Raises as `files_at`."""
    return live_rows(files_at(path, version))


def unneeded(path: str, files: TableFiles) -> list[tuple[str, int]]:
    """Return the URLs of the files that can be removed, those of the log first, each with its bytes.

    All are listed before the first is removed: whoever removes them checks in between that it still has its lock. So no file
    of a commit that another process makes by now is among them.
    """
    table, removable = Folder.at(path), list[tuple[str, int]]()
    for name, size in sorted(log_files(table).items()):
        match = NUMBERED.fullmatch(name)
        if match is not None and int(match[1]) < files.checkpoint:
            removable.append((table.url_of(f"{LOG}/{name}"), size))
    for file in table.files():
        if not file.key.startswith(f"{LOG}/") and _checked(file.key) not in files.needed:
            removable.append((table.url_of(file.key), file.bytes))
    return removable


def _checked(name: str) -> str:
    """Return the file itself, or the one whose checksum it is: the same name between a dot and `.crc`."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last[1:-4]}" if last.startswith(".") and last.endswith(".crc") else name


def remove_files(files: Iterable[tuple[str, int]]) -> SpaceReclaimed:
    """Remove files that `unneeded` has listed, and return the space reclaimed; one that is gone is no error.

    The caller has checked its lock since they were listed.
    """
    reclaimed = SpaceReclaimed()
    for url, size in files:
        store, key = store_of(url)
        store.delete(key)
        reclaimed = reclaimed.plus(SpaceReclaimed(1, size))
    return reclaimed


def sync_commits(tables: Mapping[str, int], store: Store) -> int:
    """Sync the newer files of Delta tables (URL → the version that is durable already) in a store; return their number.

    Raises LakeError if a file that a commit names is missing. Nothing is read or done if the store's writes are durable.
    """
    if store.writes_are_durable:
        return 0
    data, commits, others = list[str](), list[str](), list[str]()
    for path, durable in tables.items():
        table, versions = Folder.at(path), range(durable + 1, last_following(path, durable) + 1)
        actions = [read_actions(table, commit_name(version)) for version in versions]
        data += map(table.key_of, _data_files(actions))
        commits += map(table.key_of, map(commit_name, versions))
        others += map(table.key_of, _notes(table, versions, actions) if versions else ())
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


def _data_files(commits: Iterable[Sequence[tuple[str, Action]]]) -> list[str]:
    """Return the files that these commits added and did not remove again, and then their vectors."""
    vectors: dict[str, str | None] = {}
    for actions in commits:
        # A file with another vector is removed and added again by the same commit.
        removed, added = (
            [data_file(action) for kind, action in actions if kind == which] for which in ("remove", "add")
        )
        for file in removed:
            vectors.pop(file.path, None)
        vectors |= {file.path: file.vector for file in added}
    return list(dict.fromkeys([*vectors, *(vector for vector in vectors.values() if vector is not None)]))


def _notes(table: Folder, versions: range, commits: Iterable[Sequence[tuple[str, Action]]]) -> list[str]:
    """Return checksums, checkpoints and other files of a log with these numbers, and the pointer to a checkpoint."""
    if all(map(_is_ours, commits)):
        notes = [note for version in versions for note in (checksum_name(version), checkpoint_name(version))]
        return [note for note in (*notes, f"{LOG}/{POINTERS[0]}") if table.store.exists(table.key_of(note))]
    named = []
    for name in sorted(log_files(table, versions.start - 1)):
        match = NUMBERED.fullmatch(name)
        if name in POINTERS or (match is not None and int(match[1]) in versions):
            named.append(f"{LOG}/{name}")
    return [name for name in named if name not in set(map(commit_name, versions))]


def _is_ours(actions: Iterable[tuple[str, Action]]) -> bool:
    """True if this engine has made a commit: then it has these notes and no others."""
    return any(kind == "commitInfo" and action.get("engineInfo") == ENGINE for kind, action in actions)
