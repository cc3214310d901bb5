"""The basis of a table's proof: the versions, schema and catalog at which it was equal, where a proof of changes begins.

Keeping it belongs to `record`, finding what has changed since to `changed_keys`.

A Delta version is what its commits say, and a commit's digest names it: if the log has the same commit under the version's
number, the version has the files that were proven.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakeproof.field_types import Count
from lakeproof.lake.delta.log.commits import commit_name, digest_of_bytes
from lakeproof.lake.records.documents import CutTable
from lakeproof.names import TableName
from lakeproof.storage.document import Part
from lakeproof.storage.folder import Folder
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import NotFoundError


@dataclass(frozen=True, slots=True)
class Basis(Part):
    """A table as it was proven: two Delta versions with the SHA-256 of their commits, its schema, its catalog's digest."""

    current_version: Count
    current_commit: str
    history_version: Count
    history_commit: str
    schema_id: str
    catalog: str

    @classmethod
    def of(cls, lake: SourceLake, table: TableName, cut_table: CutTable, catalog: str) -> Basis | None:
        """Return the basis of a table at a cut; None if a commit is not in its log any more."""
        current = commit_digest(lake.url(lake.paths.current(table)), cut_table.current_version)
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
