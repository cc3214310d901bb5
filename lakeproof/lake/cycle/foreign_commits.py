"""Foreign commits to a table of the lake: found before a cycle writes the table, taken back when a snapshot of it enters.

Taking our own commits out of a log, if no cut names them, does not belong here but in
`lakeproof.lake.delta.cleaned_log`; what the snapshot corrects in `snapshot_entry`.

    V ── foreign ── …                        the table is held at V: a cut names V, so readers never see the foreign commit
    V ── foreign ── RESTORE to V ── ours     a snapshot enters: both tables are what V was again, then the difference is made

Both tables are read before either is written, so a table that is held has no commit of the cycle. The RESTORE is the
cycle's own, known by its `userMetadata`, and made on the newest version or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakeproof.errors import TransientError
from lakeproof.failpoints import failpoint
from lakeproof.lake.columns import quoted
from lakeproof.lake.delta.apply import conflicts
from lakeproof.lake.delta.cleaned_log import CleanedLog, clean_log
from lakeproof.lake.delta.commit import USER_METADATA, CommitInfo, commit_of_cycle, number_of
from lakeproof.lake.delta.log import NO_VERSION, DeltaCommit, ForeignCommitError, LogGapError, find_commit
from lakeproof.lake.records.documents import CutTable, Intent
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.lake.records.lease import Lease
from lakeproof.lake.spark.session import with_settings
from lakeproof.names import TableName

_FILES_GONE = "Not all files from version"


@dataclass(frozen=True, slots=True)
class _Log:
    """The log of one of a table's two Delta tables, and the cycle's commit to it."""

    layer: str
    path: str
    cleaned: CleanedLog
    commit: CommitInfo


@contextmanager
def hold_for_foreign_commits(table: TableName) -> Iterator[None]:
    """Turn a foreign commit or a log's gap in the block into TableHeldError: the table is held, the others go on."""
    try:
        yield
    except (ForeignCommitError, LogGapError) as error:
        cause = HeldCause.LOG_DAMAGED if isinstance(error, LogGapError) else HeldCause.FOREIGN_COMMIT
        # A copy begins a log that can't be read again. History's past is lost with it, so that is not done unasked.
        lost = error.layer == "history" and isinstance(error, LogGapError)
        way_out = WayOut.RESTORE_LOG_OR_SNAPSHOT if lost else WayOut.SNAPSHOT
        detail = {"layer": error.layer, "path": error.path, "problem": error.reason}
        raise TableHeldError(str(table), cause, way_out, detail) from None


def without_foreign_commits(
    session: SparkSession | None,
    lease: Lease,
    intent: Intent,
    table: TableName,
    before: CutTable | None,
    *,
    take_back: bool,
) -> CutTable | None:
    """Return `before` with the versions that the cycle writes on; what no cut names is taken out of both logs first.

    Raises TableHeldError if somebody else has committed to one of both tables since, unless `take_back` undoes it.
    """
    lake = lease.lake
    places = {"history": lake.url(lake.paths.history(table)), "current": lake.url(lake.paths.current(table))}
    versions = dict.fromkeys(places, NO_VERSION)
    if before is not None:
        versions = {"history": before.history_version, "current": before.current_version}

    def is_ours(commit: DeltaCommit) -> bool:
        number = number_of(commit, f"lakeproof/{lake.source}/")
        # If no cut has the table and later cycles have written it, its cuts were lost: a person looks at it.
        return number is not None and (before is not None or number <= intent.number)

    lease.check()
    logs = [
        _Log(
            layer,
            path,
            clean_log(session, path, versions[layer], is_ours),
            commit_of_cycle(lake.source, intent, layer, table),
        )
        for layer, path in places.items()
    ]
    for log in logs:
        if log.cleaned.foreign:
            _refuse(table, log, before, take_back=take_back)
        versions[log.layer] = log.cleaned.base
    for log in logs:
        if log.cleaned.foreign and session is not None:
            lease.check()
            versions[log.layer] = _taken_back(session, log, table)
            failpoint("cycle.after_restore")
    if before is None:
        return None
    return replace(before, history_version=versions["history"], current_version=versions["current"])


def _refuse(table: TableName, log: _Log, before: CutTable | None, *, take_back: bool) -> None:
    """Raise TableHeldError unless the foreign commits are to be taken back, and can be."""
    if before is None:
        cause, way_out = HeldCause.TABLE_NOT_NAMED, WayOut.MOVE_TABLE_THEN_SNAPSHOT
        raise TableHeldError(str(table), cause, way_out, {"path": log.path})
    detail = {"layer": log.layer, "path": log.path, "problem": log.cleaned.foreign[0].description}
    if any(map(log.commit.is_followed_by, log.cleaned.foreign)):
        # Delta takes our commit for a repeat of that one, and skips it in silence.
        raise TableHeldError(str(table), HeldCause.FOREIGN_COMMIT, WayOut.BY_HAND, detail)
    if not take_back or any(map(log.commit.is_in, log.cleaned.foreign)):
        raise TableHeldError(str(table), HeldCause.FOREIGN_COMMIT, WayOut.SNAPSHOT, detail)


def _taken_back(session: SparkSession, log: _Log, table: TableName) -> int:
    """Make the table what it was before the foreign commits; returns the version that says so."""
    path, cleaned, user_metadata = log.path, log.cleaned, log.commit.user_metadata
    try:
        with with_settings(session, {USER_METADATA: user_metadata}), conflicts(path):
            session.sql(f"RESTORE TABLE delta.{quoted(path)} TO VERSION AS OF {cleaned.base}")
    except (PySparkException, Py4JJavaError) as error:
        problem = str(error).partition("\n")[0]
        # What Delta refuses it refuses again; any other error (a full disk, a cancelled job) may have passed by then.
        refused = "DELTA_" in problem or _FILES_GONE in problem
        way_out = WayOut.BY_HAND if refused else WayOut.SNAPSHOT
        raise TableHeldError(str(table), HeldCause.FOREIGN_COMMIT_STAYS, way_out, {"problem": problem}) from error
    try:
        restore = find_commit(path, cleaned.newest, lambda c: c.user_metadata == user_metadata)[1]
    except ForeignCommitError:
        restore = None
    if restore is None:
        raise TransientError(path, "someone else committed to the table meanwhile", "the next run finishes the cycle")
    return restore.version
