"""The files that a Delta table's versions need, from one version on, and the files that can be removed.

Choosing the versions to keep belongs to `lakeproof.commands.maintain`; reading what a commit says about itself to `log`.

Delta's own VACUUM decides by the age of a removal and by one version; here exactly those files are kept that kept cuts
name. Only the holder of the source's lease may use this: it does not know the files of a commit that is being made.

    log     the newest checkpoint at or before the oldest version that is needed, and everything after it
    files   the files of that version, and those that any later commit added, with their deletion vectors
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from lakeproof.errors import LakeError
from lakeproof.lake.delta.files.data_files import DeltaFile, data_file, live_rows
from lakeproof.lake.delta.log.commits import LOG, LogGapError, log_files, read_actions
from lakeproof.lake.delta.log.state import at_checkpoint, commits_after, listed_log, read_state
from lakeproof.storage.folder import Folder
from lakeproof.storage.open import store_of

_NUMBERED = re.compile(r"\.?([0-9]{20})\..*")


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files that a table needs from `oldest` on: `newest` are those of its newest version, `needed` all paths.

    `checkpoint` is the version of the checkpoint that `oldest` is read from, -1 if there is none.
    """

    oldest: int
    checkpoint: int
    newest: tuple[DeltaFile, ...]
    needed: frozenset[str]

    @property
    def vectors(self) -> int:
        """The number of the newest version's files that have deleted rows."""
        return sum(1 for file in self.newest if file.vector is not None)


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
    return TableFiles(oldest, log.checkpoint, tuple(map(data_file, replay.files.values())), frozenset(paths))


def files_at(path: str, version: int) -> tuple[DeltaFile, ...]:
    """Return the files of one version; raises LakeError if there is no log, or if it is not whole up to there."""
    return tuple(map(data_file, read_state(path, version).files.values()))


def rows_at(path: str, version: int) -> int | None:
    """Return the number of rows of one version, by the log alone; None if it does not say. Raises as `files_at`."""
    return live_rows(files_at(path, version))


def unneeded(path: str, files: TableFiles) -> Iterator[tuple[str, int]]:
    """Yield the URLs of the files that can be removed, those of the log first, each with its bytes."""
    table = Folder.at(path)
    for name, size in sorted(log_files(table).items()):
        match = _NUMBERED.fullmatch(name)
        if match is not None and int(match[1]) < files.checkpoint:
            yield table.url_of(f"{LOG}/{name}"), size
    for file in table.files():
        if not file.key.startswith(f"{LOG}/") and _checked(file.key) not in files.needed:
            yield table.url_of(file.key), file.bytes


def _checked(name: str) -> str:
    """Return the file itself, or the one whose checksum it is: the same name between a dot and `.crc`."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last[1:-4]}" if last.startswith(".") and last.endswith(".crc") else name


def remove_file(url: str) -> None:
    """Remove a file that `unneeded` gave; one that is gone is no error."""
    store, key = store_of(url)
    store.delete(key)


def files_of_commit(table: Folder, name: str) -> tuple[list[str], list[DeltaFile]]:
    """Return the paths that a commit's file removes, and the files that it adds; raises LakeError if it is damaged."""
    removed: list[str] = []
    added: list[DeltaFile] = []
    for kind, action in read_actions(table, name):
        if kind == "remove":
            removed.append(unquote(action["path"]))
        elif kind == "add":
            added.append(data_file(action))
    return removed, added
