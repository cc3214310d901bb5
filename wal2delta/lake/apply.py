"""The apply contract: a table, the rows that go and the rows that come → exactly one Delta commit, once.

What goes and comes belongs to `net_change`, `correction` and the views; when it is written to `cycle`.

Five makes of the one commit, the cheapest that is right: create (the first rows and the table's properties together),
append (nothing goes), overwrite (everything goes), deletion vectors (`by_vectors`), and MERGE (`by_merge`). The last two
do the same; vectors are some times cheaper and need names inside one exact version of Delta, so MERGE stands in wherever
those were not tried, or where `compaction.apply` says so.

Invariant idempotent-apply: the commit carries (application id, number); before writing, the commits after the expected
version are looked at, and a number that is there already is not written again. Delta itself would skip a repeat in silence.
A commit is made on the version that was read or not at all: who loses that race starts again from there (TransientError).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

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

from wal2delta.errors import InvariantError, LakeError, TransientError
from wal2delta.lake.by_merge import merge
from wal2delta.lake.by_vectors import Unfit, commit_vectors
from wal2delta.lake.contract import CHECKPOINT_INTERVAL, USER_METADATA, Applied, Change, CommitInfo, Make, TableSpec
from wal2delta.lake.delta_log import NO_VERSION, Commit, find_commit, newest_version, read_commit
from wal2delta.lake.session import with_settings
from wal2delta.lake.vectors_check import why_not

__all__ = ["CHECKPOINT_INTERVAL", "Applied", "CommitInfo", "TableSpec", "append", "apply", "conflicts"]

_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
# Delta would try again on top of whatever was committed meanwhile.
_RETRIES = "spark.databricks.delta.maxCommitAttempts"
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
    expected_version: int | None = None,
    make: Make = "auto",
) -> Applied:
    """Commit once: rows whose `key_columns` are in `deletes` go (all, if `wipe`), then `images` come.

    `session` must be the caller's own (`spark.newSession()`): its settings carry the transaction while a commit is made.
    `images` has all the table's columns; `create` makes the table where there is none; of `bounds`, `null_safe`, `few` and
    `keys_max` see `Change`. `expected_version` is the version the table should have (found out when None): commits after it
    that change no data are passed over, any other that is not ours raises StrayCommitError, one that is ours and not
    expected InvariantError. A commit that someone else makes meanwhile raises TransientError, and ours is not made.
    """
    expected = newest_version(path) if expected_version is None else expected_version
    before, done = _found(path, expected, commit, known=expected_version is not None)
    if done is not None:
        return done
    if before == NO_VERSION and (create is None or images is None):
        raise LakeError(path, "there is no Delta table", "restore it, or bootstrap the table again")
    unfit: str | None = None
    with _transaction(session, commit), conflicts(path):
        if before == NO_VERSION and create is not None and images is not None:
            made = "create"
            _append(images, path, commit, create.options(images.columns))
        elif wipe:
            made = "overwrite"
            rows = session.read.format("delta").load(path).limit(0) if images is None else images
            tagged(rows, commit).mode("overwrite").save(path)
        elif deletes is not None or images is not None:
            change = Change(tuple(key_columns), deletes, images, bounds, null_safe, few, keys_max)
            by_vectors = make == "auto" and why_not(session) is None
            made, unfit = _change(session, path, change, commit, before if by_vectors else None)
        else:
            return Applied(before, 0, 0)
    return replace(_outcome(path, before, commit, made), unfit=unfit)


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


def _change(
    session: SparkSession, path: str, change: Change, commit: CommitInfo, before: int | None
) -> tuple[str, str | None]:
    """By vectors on top of `before`, else (or where that is None) by public means; gives which, and why a MERGE."""
    unfit = None
    if before is not None:
        try:
            commit_vectors(session, path, change, commit, before)
        except Unfit as error:
            unfit = str(error)
        else:
            return "vectors", None
    if change.deletes is not None:
        merge(session, path, change, change.deletes)
        return "merge", unfit
    if change.images is not None:
        _append(change.images, path, commit, {})
    return "append", None


def _append(rows: DataFrame, path: str, commit: CommitInfo, options: Mapping[str, str]) -> None:
    tagged(rows, commit).options(**options).mode("append").save(path)


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
        _RETRIES: "0",
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


def _found(path: str, expected: int, commit: CommitInfo, *, known: bool) -> tuple[int, Applied | None]:
    """The version to commit on, and what an earlier attempt committed, None where there was none."""
    if not known:
        newest = read_commit(path, expected)
        found = newest if newest is not None and commit.is_in(newest) else None
        before = expected
    else:
        before, found = find_commit(path, expected, commit.is_in)
    if found is None:
        return before, None
    if not commit.may_be_done:
        raise InvariantError(path, f"cycle {commit.number} is in version {found.version} already", "report this")
    return before, _applied(found, "none", skipped=True)


def _outcome(path: str, before: int, commit: CommitInfo, make: str) -> Applied:
    version, made = find_commit(path, before, commit.is_in)
    if made is None:
        # A change that meets no row makes no commit.
        return Applied(version, 0, 0, make=make)
    return _applied(made, make, skipped=False)


def _applied(commit: Commit, make: str, *, skipped: bool) -> Applied:
    inserted = commit.metric("numTargetRowsInserted", "numOutputRows")
    return Applied(commit.version, inserted, commit.metric("numTargetRowsDeleted"), skipped, make)
