"""The basis of a table's proof: the versions, schema and catalog at which it was equal, where a proof of changes begins.

Keeping it belongs to `record`, finding what has changed since to `changed_keys`.

A commit's digest names a version, as long as the log is what its commits say. A checkpoint stands for the commits below it,
and is believed by whoever reads the log. So current's digest has the version's files in it: those of now, with the commits
since taken back, must be the files that were proven.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakeproof.errors import LakeError
from lakeproof.field_types import Count
from lakeproof.lake.delta.log.commits import commit_name, digest_of_bytes
from lakeproof.lake.delta.log.state import FileKey, read_state, tombstone_key
from lakeproof.lake.records.documents import CutTable
from lakeproof.names import TableName
from lakeproof.storage.document import Part
from lakeproof.storage.folder import Folder
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import NotFoundError


@dataclass(frozen=True, slots=True)
class Basis(Part):
    """A table as it was proven: two Delta versions with the digests of their commits, its schema, its catalog's digest.

    `current_commit` is that of the commit and the files of the version.
    """

    current_version: Count
    current_commit: str
    history_version: Count
    history_commit: str
    schema_id: str
    catalog: str

    @classmethod
    def of(cls, lake: SourceLake, table: TableName, cut_table: CutTable, catalog: str) -> Basis | None:
        """Return the basis of a table at a cut; None if a commit is not in its log any more."""
        path = lake.url(lake.paths.current(table))
        try:
            files = map(tombstone_key, read_state(path, cut_table.current_version).files.values())
        except LakeError:
            return None
        current = version_digest(path, cut_table.current_version, files)
        history = commit_digest(lake.url(lake.paths.history(table)), cut_table.history_version)
        if current is None or history is None:
            return None
        versions = cut_table.current_version, current, cut_table.history_version, history
        return cls(*versions, cut_table.version.id, catalog)


def commit_digest(path: str, version: int) -> str | None:
    """Return the digest of a version's commit, None if the log does not have it."""
    try:
        return digest_of_bytes(Folder.at(path).get(commit_name(version)))
    except NotFoundError:
        return None


def version_digest(path: str, version: int, files: Iterable[FileKey]) -> str | None:
    """Return the digest of a version's commit and of its files, None if the log does not have the commit."""
    commit = commit_digest(path, version)
    return None if commit is None else digest_of_bytes(repr((commit, sorted(files))).encode())
