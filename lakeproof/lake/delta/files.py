"""The files that a Delta table's versions need, from one version on, and the files that can be removed.

Choosing the versions to keep belongs to `lakeproof.commands.maintain`; reading what a commit says about itself to `log`.

Delta's own VACUUM decides by the age of a removal and by one version; here exactly those files are kept that kept cuts
name. Only the holder of the source's lease may use this: it does not know the files of a commit that is being made.

    log     the newest checkpoint at or before the oldest version that is needed, and everything after it
    files   the files of that version, and those that any later commit added, with their deletion vectors
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa

from lakeproof.errors import LakeError
from lakeproof.lake.delta.data_files import DeltaFile, data_file, live_rows
from lakeproof.lake.delta.log import LOG, log_files, read_actions
from lakeproof.storage.folder import Folder
from lakeproof.storage.open import store_of
from lakeproof.storage.parquet import parquet_file
from lakeproof.storage.store import NotFoundError

_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint(\.[0-9]{10}\.[0-9]{10})?\.parquet")
_COMMIT = re.compile(r"([0-9]{20})\.json")
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
    commits, checkpoint, parts = _log(table, oldest)
    last = max(commits, default=-1)
    if last < named:
        # Otherwise nothing would be needed, and all files of the table would be removed.
        raise LakeError(path, f"its log ends at version {last}, before version {named}", "restore it from a backup")
    live = _of_checkpoints(table, parts)
    needed = set(live.values()) if checkpoint == oldest else set()
    for version in range(checkpoint + 1, last + 1):
        try:
            removed, added = _of_version(table, commits.get(version), version)
        except LakeError:
            if version > named:
                break
            raise
        for name in removed:
            live.pop(name, None)
        live |= {file.path: file for file in added}
        if version == oldest:
            needed = set(live.values())
        elif version > oldest:
            needed |= set(added)
    paths = {file.path for file in needed} | {file.vector for file in needed if file.vector is not None}
    return TableFiles(oldest, checkpoint, tuple(live.values()), frozenset(paths))


def files_at(path: str, version: int) -> tuple[DeltaFile, ...]:
    """Return the files of one version; raises LakeError if there is no log, or if it is not whole up to there."""
    table = Folder.at(path)
    commits, checkpoint, parts = _log(table, version)
    live = _of_checkpoints(table, parts)
    for number in range(checkpoint + 1, version + 1):
        removed, added = _of_version(table, commits.get(number), number)
        for name in removed:
            live.pop(name, None)
        live |= {file.path: file for file in added}
    return tuple(live.values())


def rows_at(path: str, version: int) -> int | None:
    """Return the number of rows of one version, by the log alone; None if it does not say. Raises as `files_at`."""
    return live_rows(files_at(path, version))


def _log(table: Folder, version: int) -> tuple[dict[int, str], int, list[str]]:
    """Return the log's commits, and the newest whole checkpoint up to a version (-1: none) with its parts.

    Of commits before the checkpoint to which the log points, those that are needed for this version are listed alone.
    """
    pointed = _pointed(table)
    commits, checkpoint, parts = _listed(table, version, pointed if pointed <= version else -1)
    if pointed <= version and checkpoint < pointed:
        # It is gone, or its writer was killed.
        return _listed(table, version, -1)
    return commits, checkpoint, parts


def _pointed(table: Folder) -> int:
    """Return the version of the checkpoint to which the log points, -1 if to none: a hint that may be wrong."""
    try:
        return int(json.loads(table.get(f"{LOG}/_last_checkpoint"))["version"])
    except (NotFoundError, ValueError, LookupError, TypeError):
        return -1


def _listed(table: Folder, version: int, since: int) -> tuple[dict[int, str], int, list[str]]:
    names = sorted(log_files(table, since))
    if not names:
        raise LakeError(table.url, "there is no Delta table", "restore it, or bootstrap the table again")
    checkpoints: dict[int, list[str]] = {}
    for name in names:
        match = _CHECKPOINT.fullmatch(name)
        if match is not None and int(match[1]) <= version:
            checkpoints.setdefault(int(match[1]), []).append(name)
    checkpoint = max((number for number, parts in checkpoints.items() if _is_whole(parts)), default=-1)
    commits = {int(m[1]): n for n in names if (m := _COMMIT.fullmatch(n))}
    return commits, checkpoint, checkpoints.get(checkpoint, [])


def checkpoint_at(table: Folder, version: int) -> tuple[int, list[str]]:
    """Return the newest whole checkpoint up to a version (-1: none), and the names of its parts in the log.

    Raises LakeError if there is no log.
    """
    _, checkpoint, parts = _log(table, version)
    return checkpoint, parts


def _of_checkpoints(table: Folder, parts: list[str]) -> dict[str, DeltaFile]:
    return {file.path: file for name in parts for file in _of_checkpoint(table, f"{LOG}/{name}")}


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


def _is_whole(parts: list[str]) -> bool:
    """True if a checkpoint has all its parts: its writer may have been killed."""
    counts = [None if (match := _CHECKPOINT.fullmatch(name)) is None else match[2] for name in parts]
    return None in counts or any(len(parts) == int(count[-10:]) for count in counts if count is not None)


def _of_checkpoint(table: Folder, name: str) -> Iterator[DeltaFile]:
    try:
        with parquet_file(table.store, table.key_of(name)) as file:
            for batch in file.iter_batches(columns=["add"]):
                for added in batch.column(0).to_pylist():
                    if added is not None and added["path"] is not None:
                        yield data_file(added)
    except (OSError, pa.ArrowInvalid) as error:
        # A passing error of the system is no damage; Arrow's own reading errors have no errno.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise LakeError(table.url_of(name), "it is damaged", "restore it from a backup") from None


def _of_version(table: Folder, name: str | None, version: int) -> tuple[list[str], list[DeltaFile]]:
    if name is None:
        raise LakeError(table.url, f"its log has no version {version}", "restore it from a backup")
    return files_of_commit(table, f"{LOG}/{name}")


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
