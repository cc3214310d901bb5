"""A commit of rows, whoever made the files: files come, rows at places go, and the table's history shows what it was.

Finding the places does not belong here (`search`, `spark_places`), nor making files (`link_commit`, `spark_files`) or the
version itself (`committer`).

A table without deletion vectors (`readers: portable`) loses rows by having the rest of their files written anew (`spared`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakeproof.lake.delta.arrow_rows import DeltaRows
from lakeproof.lake.delta.commit import Applied, CommitInfo
from lakeproof.lake.delta.committer import Change, NewFile, Operation, version_to_follow
from lakeproof.lake.delta.files import data_file
from lakeproof.lake.delta.reader_features import VECTORS_ENABLED
from lakeproof.lake.delta.search import Rows
from lakeproof.lake.delta.state import Action, TableState


@dataclass(frozen=True, slots=True)
class RowCommit:
    """One commit on the version `before` (None: the table's first): `files` come, `places` go, or `everything` goes.

    `places` are row numbers by the file's path in the log. `metadata`: other columns or properties, or those of a new table.
    The rows that `spared` gives for the same places are in `files`, if the table has no vectors.
    """

    path: str
    info: CommitInfo
    before: TableState | None
    files: Sequence[NewFile]
    places: Mapping[str, Rows] = field(default_factory=dict)
    everything: bool = False
    metadata: Action | None = None

    def commit(self) -> Applied:
        """Make the commit; none, if nothing changes."""
        if self.before is not None:
            # Another commit since the rows were found is reported by name; one from here on loses the race or wins it.
            version_to_follow(self.path, self.before.version, self.info)
        change = Change(self.path, self.before)
        if self.metadata is not None:
            change.set_metadata(self.metadata)
        deleted = change.remove_all() if self.everything else self._remove(change)
        inserted = change.add(self.files) - self._spared
        if change.is_empty and self.before is not None:
            return Applied(self.before.version, 0, 0)
        state = change.commit(self.info, self._operation(inserted, deleted))
        return Applied(state.version, inserted, deleted)

    def _remove(self, change: Change) -> int:
        if self.before is None or has_vectors(self.before):
            return change.mark(self.places)
        for path in self.places:
            change.remove(self.before.files[path])
        return sum(map(len, self.places.values()))

    @property
    def _spared(self) -> int:
        """The number of rows that are in new files because others of their files go."""
        if self.before is None or self.everything or has_vectors(self.before):
            return 0
        return sum((data_file(self.before.files[p]).live_rows or 0) - len(rows) for p, rows in self.places.items())

    def _operation(self, inserted: int, deleted: int) -> Operation:
        """Return what the table's history shows: a MERGE if rows went, else an append."""
        if self.before is None:
            name, parameters = "CREATE TABLE AS SELECT", {"isManaged": "false", "partitionBy": "[]"}
        elif self.everything:
            name, parameters = "WRITE", {"mode": "Overwrite", "partitionBy": "[]"}
        elif deleted:
            clauses = {
                "matchedPredicates": [{"actionType": "delete"}],
                "notMatchedPredicates": [{"actionType": "insert"}],
            }
            metrics = {
                "numTargetRowsInserted": inserted,
                "numTargetRowsDeleted": deleted,
                "numTargetRowsUpdated": 0,
                "numSourceRows": inserted + deleted,
            }
            return Operation("MERGE", {kind: json.dumps(clause) for kind, clause in clauses.items()}, metrics)
        else:
            name, parameters = "WRITE", {"mode": "Append", "partitionBy": "[]"}
        size = sum(int(file.entry["size"]) for file in self.files)
        return Operation(
            name, parameters, {"numFiles": len(self.files), "numOutputRows": inserted, "numOutputBytes": size}
        )


def has_vectors(state: TableState) -> bool:
    """True if rows of the table's files may be marked as deleted."""
    return state.has_property(VECTORS_ENABLED, "true")


def spared(state: TableState, places: Mapping[str, Rows]) -> Iterator[pa.Table]:
    """Give the rows that stay of files that lose others, if the table has no vectors: they are to be written anew.

    They have every column of the table, dropped ones too.
    """
    if has_vectors(state) or not places:
        return
    rows = DeltaRows.of_state(state)
    for path, numbers in places.items():
        for batch in rows.without(data_file(state.files[path]), numbers):
            yield pa.Table.from_batches([batch])
