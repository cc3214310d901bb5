"""The apply contract: a table, the rows to delete and the rows to insert → exactly one Delta commit, once.

What is deleted and inserted belongs to `rows.change` and its makers; when it is written to `lakeproof.lake.cycle`.

The commit is made with one of five strategies, the cheapest that is right: create (the first rows and the table's
properties together), append (nothing is deleted), overwrite (everything is deleted), deletion vectors (`vectors`), and MERGE
(`merge`). The last two do the same; vectors are several times cheaper and need names inside one exact version of Delta, so
MERGE replaces them wherever those were not tried, or if `compaction.apply` says so.

Invariant idempotent-apply: the commit carries (application id, number), and is made on the expected version: whatever an
earlier attempt has left above that version was taken out of the log (`cleaned_log`). Delta itself would skip a repeat in
silence. A commit is made on the version that was read or not at all: the loser of that race starts again from the newer
version (TransientError).

A commit is made in two steps, so that anything that may be refused about a table is known before the first of its Delta
tables gets a commit: `prepare` finds the rows to delete and checks them (`rows.preconditions`), `Prepared.commit` writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from lakeproof.errors import LakeError, TransientError
from lakeproof.lake.delta.commit import USER_METADATA, Applied, CommitInfo, CommitRequest, Unsupported, WriteStrategy
from lakeproof.lake.delta.committer import version_to_follow
from lakeproof.lake.delta.log import NO_VERSION, find_commit, newest_version
from lakeproof.lake.delta.merge import check_merge, write_with_merge
from lakeproof.lake.delta.self_test import supported
from lakeproof.lake.delta.vectors import FoundRows, find_rows, write_with_deletion_vectors
from lakeproof.lake.rows.key_preconditions import check_counts
from lakeproof.lake.spark.session import with_settings
from lakeproof.storage.folder import Folder

_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
# Otherwise Delta would try again on top of whatever was committed meanwhile.
ONE_ATTEMPT = {"spark.databricks.delta.maxCommitAttempts": "0"}
# A first commit can't be taken back by a later one: it may be removed while its maker sleeps, who would then write the
# checksum file of the next table's first commit.
_NO_CHECKSUM = {"spark.databricks.delta.writeChecksumFile.enabled": "false"}
_LOST = "DELTA_MAX_COMMIT_RETRIES_EXCEEDED"
_CONFLICTS = (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)


def apply(session: SparkSession, request: CommitRequest) -> Applied:
    """Commit once: the change's `deletes` go (all rows, if it truncates), then its `images` come. Raises as `prepare`."""
    return prepare(session, request).commit()


def prepare(session: SparkSession, request: CommitRequest) -> Prepared:
    """Find the rows to delete, and commit nothing yet.

    `session` must be the caller's own (`spark.newSession()`): its settings carry the transaction while a commit is made.
    Commits after the expected version that change no data are passed over; any other raises ForeignCommitError, one with our
    number InvariantError. Raises DriftedError if the rows that the change presupposes are not those in the table. If someone
    else commits before us, TransientError is raised and our commit is not made.
    """
    path, change, expected = request.path, request.change, request.expected_version
    before = newest_version(path) if expected is None else version_to_follow(path, expected, request.info)
    if before == NO_VERSION:
        if request.create is None or change.images is None:
            raise LakeError(path, "there is no Delta table", "restore it, or bootstrap the table again")
        return Prepared(session, request, before, WriteStrategy.CREATE)
    if change.truncate:
        check_counts(path, change.preconditions or 0)
        return Prepared(session, request, before, WriteStrategy.OVERWRITE)
    if change.is_empty:
        return Prepared(session, request, before, WriteStrategy.NONE)
    fallback_reason = None
    with _transaction(session, request.info), conflicts(path):
        if request.strategy is WriteStrategy.AUTO and supported(session, request.path):
            try:
                rows = find_rows(session, request, before)
            except Unsupported as error:
                fallback_reason = str(error)
            else:
                return Prepared(session, request, before, WriteStrategy.DELETION_VECTORS, rows=rows)
        if change.deletes is None:
            return Prepared(session, request, before, WriteStrategy.APPEND, fallback_reason=fallback_reason)
        check_merge(session, request)
    return Prepared(session, request, before, WriteStrategy.MERGE, fallback_reason=fallback_reason)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A commit that can be made, once, on top of version `before`; `fallback_reason` as in `Applied`."""

    session: SparkSession
    request: CommitRequest
    before: int
    strategy: WriteStrategy
    rows: FoundRows | None = None
    fallback_reason: str | None = None

    def commit(self) -> Applied:
        """Write, and commit."""
        if self.strategy is WriteStrategy.NONE:
            return Applied(self.before, 0, 0)
        path, info = self.request.path, self.request.info
        # Somebody else's commit since `prepare` is reported by name; a commit from here on loses the race or wins it.
        version_to_follow(path, self.before, info)
        with _transaction(self.session, info), one_attempt(self.session, path, self.before), conflicts(path):
            self._write()
        version, commit = find_commit(path, self.before, info.is_in)
        if commit is None:
            # A change that meets no row makes no commit.
            return Applied(version, 0, 0, self.strategy, self.fallback_reason)
        inserted = commit.metric("numTargetRowsInserted", "numOutputRows")
        deleted = commit.metric("numTargetRowsDeleted")
        return Applied(commit.version, inserted, deleted, self.strategy, self.fallback_reason)

    def _write(self) -> None:
        session, request, images = self.session, self.request, self.request.change.images
        if self.rows is not None:
            write_with_deletion_vectors(self.rows, request.info)
        elif self.strategy is WriteStrategy.MERGE:
            write_with_merge(session, request)
        elif self.strategy is WriteStrategy.OVERWRITE:
            rows = session.read.format("delta").load(request.path).limit(0) if images is None else images
            columns = {"overwriteSchema": "true"} if request.new_columns else {}
            tagged(rows, request.info).options(**columns).mode("overwrite").save(request.path)
        elif images is not None:
            spec = request.create if self.strategy is WriteStrategy.CREATE else None
            options = {} if spec is None else spec.options(images.columns)
            tagged(images, request.info).options(**options).mode("append").save(request.path)


def tagged(rows: DataFrame, commit: CommitInfo) -> DataFrameWriter:
    """Return a writer whose commit carries its identity."""
    return (
        rows.write.format("delta")
        .option("txnAppId", commit.app_id)
        .option("txnVersion", commit.number)
        .option("userMetadata", commit.user_metadata)
    )


def _transaction(session: SparkSession, commit: CommitInfo) -> AbstractContextManager[None]:
    """Set the session's transaction, which MERGE takes from its settings.

    Any other write in the session would be tagged with it, or skipped.
    """
    settings = {
        _TXN_APP: commit.app_id,
        _TXN_VERSION: str(commit.number),
        USER_METADATA: commit.user_metadata,
        **ONE_ATTEMPT,
    }
    return with_settings(session, settings)


def one_attempt(session: SparkSession, path: str, before: int) -> AbstractContextManager[None]:
    """Set how a commit on version `before` is made: on that version, or not at all."""
    is_first = before == NO_VERSION and Folder.at(path).store.holders_may_sleep
    return with_settings(session, {**ONE_ATTEMPT, **(_NO_CHECKSUM if is_first else {})})


@contextmanager
def conflicts(path: str) -> Iterator[None]:
    """Turn a lost race for the table's next version into TransientError; nothing was committed then."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if not isinstance(error, _CONFLICTS) and _LOST not in str(error):
            raise
        raise TransientError(
            path, "someone else committed to the table meanwhile", "the next run finishes the cycle"
        ) from error
