"""The apply contract: a table, the rows to delete and the rows to insert as Spark has them → exactly one version, once.

What is deleted and inserted belongs to `rows.change` and its makers; when it is written to `lakeproof.lake.cycle`. What this
process writes without Spark is committed by `link_commit`; both end in the same commit (`row_commit`).

    deletes ─► the places of rows (`spark_places`) ┐
    images ─► plain Parquet in a folder of the table (`spark_files`) ─► one commit

Invariant idempotent-apply: the commit carries (application id, number), and is made on the expected version: whatever an
earlier attempt has left above that version was restored over (`cleaned_log`). A commit is made on the version that was read
or not at all: the loser of that race starts again from the newer version (TransientError).

A commit is made in two steps, so that anything that may be refused about a table is known before the first of its Delta
tables gets a commit: `prepare` finds the rows to delete and checks them (`rows.preconditions`), `Prepared.commit` writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from lakeproof.errors import LakeError
from lakeproof.lake.delta.commit import Applied, CommitRequest
from lakeproof.lake.delta.committer import NewFile, version_to_follow
from lakeproof.lake.delta.link_commit import entry_of, statistics_columns
from lakeproof.lake.delta.local_rows import write_rows
from lakeproof.lake.delta.log import NO_VERSION, newest_version
from lakeproof.lake.delta.protocol import check_writable, metadata_of, statistics_of, with_other_columns
from lakeproof.lake.delta.row_commit import RowCommit, spared
from lakeproof.lake.delta.search import Rows
from lakeproof.lake.delta.spark_files import fields_of, write_by_spark
from lakeproof.lake.delta.spark_places import find_rows
from lakeproof.lake.delta.state import Action, TableState, read_state
from lakeproof.lake.rows.key_preconditions import check_counts
from lakeproof.storage.folder import Folder


def apply(session: SparkSession, request: CommitRequest) -> Applied:
    """Commit once: the change's `deletes` go (all rows, if it truncates), then its `images` come. Raises as `prepare`."""
    return prepare(session, request).commit()


def prepare(session: SparkSession, request: CommitRequest) -> Prepared:
    """Find the rows to delete, and commit nothing yet.

    Commits after the expected version that change no data are passed over; any other raises ForeignCommitError, one with our
    number InvariantError. Raises DriftedError if the rows that the change presupposes are not those in the table, LakeError
    about a table that lakeproof does not write. If someone else commits before us, TransientError is raised and our commit
    is not made.
    """
    path, change, expected = request.path, request.change, request.expected_version
    before = newest_version(path) if expected is None else version_to_follow(path, expected, request.info)
    if before == NO_VERSION:
        if request.create is None or change.images is None:
            raise LakeError(path, "there is no Delta table", "restore it, or bootstrap the table again")
        return Prepared(request, None)
    state = read_state(path, before)
    check_writable(state)
    if change.truncate:
        check_counts(path, change.preconditions or 0)
        return Prepared(request, state)
    return Prepared(request, state, find_rows(session, request, state))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A commit that can be made, once, on top of `before` (None: there is no table yet): the rows at `places` go."""

    request: CommitRequest
    before: TableState | None
    places: Mapping[str, Rows] = field(default_factory=dict)

    def commit(self) -> Applied:
        """Write, and commit."""
        request, before = self.request, self.before
        path, info, images = request.path, request.info, request.change.images
        if before is not None:
            # Before anything is written: somebody else's commit since `prepare` is reported by name.
            version_to_follow(path, before.version, info)
        metadata = None if images is None else _metadata(request, before, images)
        files: list[NewFile] = []
        columns = metadata if metadata is not None or before is None else before.metadata
        if images is not None and columns is not None:
            files += write_by_spark(images, path, info.number, columns)
        if before is not None:
            files += _spared_files(before, self.places, info.number)
        everything = request.change.truncate
        return RowCommit(path, info, before, files, self.places, everything, metadata).commit()


def _metadata(request: CommitRequest, before: TableState | None, images: DataFrame) -> Action | None:
    """Return the `metaData` that the commit brings; None if the table keeps its columns."""
    if before is None:
        options = {} if request.create is None else request.create.options(images.columns)
        return metadata_of(fields_of(images), options)
    return with_other_columns(before.metadata, fields_of(images)) if request.new_columns else None


def _spared_files(before: TableState, places: Mapping[str, Rows], number: int) -> list[NewFile]:
    columns, physical = statistics_columns(before.fields, statistics_of(before.metadata)), before.physical()
    rows = (part.rename_columns([physical[name] for name in part.column_names]) for part in spared(before, places))
    placed = write_rows(rows, Folder.at(before.path), f"rows-{number:012d}-", {*columns})
    return [NewFile(entry_of(file, columns)) for file in placed]
