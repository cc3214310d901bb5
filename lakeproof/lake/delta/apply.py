"""The apply contract: a table, the rows that go and the rows that come → exactly one Delta commit, once.

What goes and comes belongs to `net_change`, `correction` and the views; when it is written to `cycle`.

Five makes of the one commit, the cheapest that is right: create (the first rows and the table's properties together),
append (nothing goes), overwrite (everything goes), deletion vectors (`by_vectors`), and MERGE (`by_merge`). The last two
do the same; vectors are some times cheaper and need names inside one exact version of Delta, so MERGE stands in wherever
those were not tried, or where `compaction.apply` says so.

Invariant idempotent-apply: the commit carries (application id, number), and is made on the expected version: whatever an
earlier attempt has left above it was taken out of the log (`unnamed`). Delta itself would skip a repeat in silence. A
commit is made on the version that was read or not at all: who loses that race starts again from there (TransientError).

A commit is made in two steps, so that what may be refused about a table is known before the first of its Delta tables gets a
commit: `prepare` finds the rows that go and checks them (`presupposed`), `Prepared.commit` writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

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

from lakeproof.errors import InvariantError, LakeError, TransientError
from lakeproof.lake.delta.commit import CHECKPOINT_INTERVAL, USER_METADATA, Applied, Change, CommitInfo, Make, TableSpec
from lakeproof.lake.delta.log import NO_VERSION, find_commit, newest_version
from lakeproof.lake.delta.merge import check_merge, merge
from lakeproof.lake.delta.self_test import why_not
from lakeproof.lake.delta.vectors import FoundRows, Unfit, find_rows
from lakeproof.lake.rows.preconditions import check_counts
from lakeproof.lake.spark.session import with_settings

__all__ = [
    "CHECKPOINT_INTERVAL",
    "ONE_ATTEMPT",
    "Applied",
    "CommitInfo",
    "Prepared",
    "TableSpec",
    "append",
    "apply",
    "conflicts",
    "prepare",
    "version_to_follow",
]

_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
# Delta would try again on top of whatever was committed meanwhile.
ONE_ATTEMPT = {"spark.databricks.delta.maxCommitAttempts": "0"}
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


def apply(  # noqa: PLR0917  the contract's order: where, what goes, what comes, as which commit
    session: SparkSession,
    path: str,
    key_columns: Sequence[str],
    deletes: DataFrame | None,
    images: DataFrame | None,
    commit: CommitInfo,
    *,
    wipe: bool = False,
    create: TableSpec | None = None,
    bounds: tuple[int, int] | None = None,
    null_safe: bool = False,
    few: bool = False,
    keys_max: int | None = None,
    presupposed: int | None = None,
    expected_version: int | None = None,
    make: Make = "auto",
) -> Applied:
    """Commit once: rows whose `key_columns` are in `deletes` go (all, if `wipe`), then `images` come.

    Of the other arguments see `prepare`, and of `bounds` to `presupposed` see `Change`.
    """
    change = Change(tuple(key_columns), deletes, images, bounds, null_safe, few, keys_max, presupposed)
    ready = prepare(
        session, path, change, commit, wipe=wipe, create=create, expected_version=expected_version, make=make
    )
    return ready.commit()


def prepare(
    session: SparkSession,
    path: str,
    change: Change,
    commit: CommitInfo,
    *,
    wipe: bool = False,
    create: TableSpec | None = None,
    expected_version: int | None = None,
    make: Make = "auto",
) -> Prepared:
    """Find the rows that go, and commit nothing yet.

    `session` must be the caller's own (`spark.newSession()`): its settings carry the transaction while a commit is made.
    The change's images have all the table's columns; `create` makes the table where there is none. `expected_version` is the
    version the table should have (found out when None): commits after it that change no data are passed over, any other
    raises StrayCommitError, one with our number InvariantError. Raises DriftedError when the rows that are presupposed are
    not those that are there. A commit that someone else makes before ours raises TransientError, and ours is not made.
    """
    before = newest_version(path) if expected_version is None else version_to_follow(path, expected_version, commit)
    if before == NO_VERSION:
        if create is None or change.images is None:
            raise LakeError(path, "there is no Delta table", "restore it, or bootstrap the table again")
        return Prepared(session, path, change, commit, before, "create", create=create)
    if wipe:
        check_counts(path, change.presupposed or 0)
        return Prepared(session, path, change, commit, before, "overwrite")
    if change.deletes is None and change.images is None:
        return Prepared(session, path, change, commit, before, "none")
    unfit = None
    with _transaction(session, commit), conflicts(path):
        if make == "auto" and why_not(session) is None:
            try:
                found = find_rows(session, path, change, before)
            except Unfit as error:
                unfit = str(error)
            else:
                return Prepared(session, path, change, commit, before, "vectors", found=found)
        if change.deletes is None:
            return Prepared(session, path, change, commit, before, "append", unfit=unfit)
        if change.presupposed is not None:
            check_merge(session, path, change, change.deletes, change.presupposed)
    return Prepared(session, path, change, commit, before, "merge", unfit=unfit)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A commit that can be made, once, on top of version `before`; `unfit` says why by a MERGE; `none` makes none."""

    session: SparkSession
    path: str
    change: Change
    info: CommitInfo
    before: int
    make: str
    create: TableSpec | None = None
    found: FoundRows | None = None
    unfit: str | None = None

    def commit(self) -> Applied:
        """Make it."""
        if self.make == "none":
            return Applied(self.before, 0, 0)
        # Somebody else's commit since `prepare` is told by name; one that comes from here on loses the race or wins it.
        version_to_follow(self.path, self.before, self.info)
        with _transaction(self.session, self.info), conflicts(self.path):
            self._write()
        return replace(_outcome(self.path, self.before, self.info, self.make), unfit=self.unfit)

    def _write(self) -> None:
        images = self.change.images
        if self.found is not None:
            self.found.commit(self.info)
        elif self.make == "merge" and self.change.deletes is not None:
            merge(self.session, self.path, self.change, self.change.deletes)
        elif self.make == "overwrite":
            rows = self.session.read.format("delta").load(self.path).limit(0) if images is None else images
            tagged(rows, self.info).mode("overwrite").save(self.path)
        elif images is not None:
            options = {} if self.create is None else self.create.options(images.columns)
            tagged(images, self.info).options(**options).mode("append").save(self.path)


def append(
    session: SparkSession,
    path: str,
    rows: DataFrame,
    commit: CommitInfo,
    *,
    create: TableSpec | None = None,
    expected_version: int | None = None,
    make: Make = "auto",
) -> Applied:
    """Commit once: `rows` come."""
    return apply(session, path, (), None, rows, commit, create=create, expected_version=expected_version, make=make)


def tagged(rows: DataFrame, commit: CommitInfo) -> DataFrameWriter:
    """A writer whose commit says what it is."""
    return (
        rows.write.format("delta")
        .option("txnAppId", commit.app_id)
        .option("txnVersion", commit.number)
        .option("userMetadata", commit.user_metadata)
    )


def _transaction(session: SparkSession, commit: CommitInfo) -> AbstractContextManager[None]:
    """MERGE takes its transaction from the session's settings; any other write in it would be tagged or skipped."""
    settings = {
        _TXN_APP: commit.app_id,
        _TXN_VERSION: str(commit.number),
        USER_METADATA: commit.user_metadata,
        **ONE_ATTEMPT,
    }
    return with_settings(session, settings)


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


def version_to_follow(path: str, expected: int, commit: CommitInfo) -> int:
    """The version to commit on: `expected`, or a later one when what follows it changes no data. Raises as `apply`."""
    before, done = find_commit(path, expected, commit.is_in)
    if done is not None:
        raise InvariantError(path, f"cycle {commit.number} is in version {done.version} already", "report this")
    return before


def _outcome(path: str, before: int, commit: CommitInfo, make: str) -> Applied:
    version, made = find_commit(path, before, commit.is_in)
    if made is None:
        # A change that meets no row makes no commit.
        return Applied(version, 0, 0, make)
    inserted = made.metric("numTargetRowsInserted", "numOutputRows")
    return Applied(made.version, inserted, made.metric("numTargetRowsDeleted"), make)
