"""Commits of others to a table of the lake: found before a cycle writes the table, taken back when a snapshot of it enters.

What a commit's log says of it belongs to `delta_log`; what the snapshot corrects to `snapshot_entry`.

    V ── stray ── …                        the table is held where V has it: a cut names V, so readers never see the stray
    V ── stray ── RESTORE to V ── ours     a snapshot enters: both tables are what V was again, then the difference is made

Both tables are looked at before either is written, so a table that is held has no commit of the cycle. The RESTORE is the
cycle's own, known by its `userMetadata`; it is made on the newest version or not at all, and whoever finishes the cycle
finds it. A commit of a cycle of ours that no cut names (a compaction that had lost its lease, or was stopped by a stray
commit between the two tables) is taken back likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from wal2delta.errors import TableError, TransientError
from wal2delta.failpoints import failpoint
from wal2delta.lake.apply import conflicts
from wal2delta.lake.contract import USER_METADATA, CommitInfo
from wal2delta.lake.delta_log import NO_VERSION, Commit, Found, LogGapError, StrayCommitError, look_after
from wal2delta.lake.documents import RESNAPSHOT, CutTable
from wal2delta.lake.exact import quoted
from wal2delta.lake.lease import Lease
from wal2delta.lake.session import with_settings
from wal2delta.landing.lake_paths import LakePaths
from wal2delta.names import TableName

_RESTORE = "RESTORE"
_FILES_GONE = "Not all files from version"
_BY_HAND = "see docs/operations.md, someone else has committed to a table of the lake"


@contextmanager
def stray_commits_hold(paths: LakePaths, table: TableName) -> Iterator[None]:
    """Turn a stray commit or a log's gap that is met in the block into TableError: the table is held, the others go on."""
    try:
        yield
    except (StrayCommitError, LogGapError) as error:
        layer = "history" if error.thing == paths.url(paths.history(table)) else "current"
        remedy = RESNAPSHOT if isinstance(error, StrayCommitError) else error.remedy
        raise TableError(str(table), f"its {layer} table: {error.reason}", remedy) from None


def without_strays(
    session: SparkSession,
    lease: Lease,
    table: TableName,
    before: CutTable | None,
    identity: Callable[[str], CommitInfo],
    *,
    take_back: bool,
) -> CutTable | None:
    """`before` with the versions that the cycle writes on; `identity` gives that of the cycle's commit of a layer.

    Raises TableError where somebody else has committed to one of both tables since, unless `take_back` undoes it.
    """
    paths = lease.paths
    places = {"history": paths.url(paths.history(table)), "current": paths.url(paths.current(table))}
    if before is None:
        for layer, path in places.items():
            if look_after(path, NO_VERSION, identity(layer).is_in).strays:
                raise TableError(
                    str(table), f"in {path} there is a table that no cut names", f"move it away and {RESNAPSHOT}"
                )
        return None
    versions = {"history": before.history_version, "current": before.current_version}
    found = {layer: _look(path, versions[layer], identity(layer)) for layer, path in places.items()}
    for layer, at in found.items():
        if not at.strays:
            versions[layer] = at.base
            continue
        told, ours = f"its {layer} table: {at.strays[0].told}", identity(layer)
        if any(ours.is_followed_by(stray) for stray in at.strays):
            # Delta takes our commit for a repeat of that one, and skips it in silence.
            raise TableError(str(table), told, _BY_HAND)
        if not take_back or any(map(ours.is_in, at.strays)):
            raise TableError(str(table), told, RESNAPSHOT)
    for layer, path in places.items():
        if found[layer].strays:
            lease.check()
            versions[layer] = _taken_back(session, path, versions[layer], identity(layer), str(table))
            failpoint("cycle.after_restore")
    return replace(before, history_version=versions["history"], current_version=versions["current"])


def _look(path: str, version: int, commit: CommitInfo) -> Found:
    def takes_back(found: Commit) -> bool:
        return found.operation == _RESTORE and found.user_metadata == commit.user_metadata

    return look_after(path, version, commit.is_in, takes_back)


def _taken_back(session: SparkSession, path: str, version: int, commit: CommitInfo, table: str) -> int:
    """Make the table what `version` was; the version that says so."""
    try:
        with with_settings(session, {USER_METADATA: commit.user_metadata}), conflicts(path):
            session.sql(f"RESTORE TABLE delta.{quoted(path)} TO VERSION AS OF {version}")
    except (PySparkException, Py4JJavaError) as error:
        told = str(error).partition("\n")[0]
        # What Delta refuses it refuses again; whatever else it was (a full disk, a cancelled job) may have passed by then.
        refused = "DELTA_" in told or _FILES_GONE in told
        raise TableError(
            table, f"a commit of someone else can't be taken back: {told}", _BY_HAND if refused else RESNAPSHOT
        ) from error
    found = _look(path, version, commit)
    if found.strays:
        raise TransientError(path, "someone else committed to the table meanwhile", "the next run finishes the cycle")
    return found.before
