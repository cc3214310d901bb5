"""Foreign commits to a table of the lake: found before a cycle writes the table, taken back when a snapshot of it enters.

Taking our own commits out of a log, if no cut names them, is in
`lakeproof.lake.delta.log.cleaned`; what the snapshot corrects in `entries.snapshot`.

    V ── foreign ── …                        the table is held at V: a cut names V, so readers never see the foreign commit
    V ── foreign ── RESTORE to V ── ours     a snapshot enters: both tables are what V was again, then the difference is made

Both tables are read before either is written, so a table that is held has no commit of the cycle. The RESTORE carries the
cycle's `userMetadata`, and is made on the newest version or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from lakeproof.errors import LakeError
from lakeproof.failpoints import failpoint
from lakeproof.lake.delta.committer import CommitInfo, commit_number, commit_of_cycle
from lakeproof.lake.delta.log.cleaned import CleanedLog, clean_log, restore
from lakeproof.lake.delta.log.commits import NO_VERSION, DeltaCommit, ForeignCommitError, LogGapError
from lakeproof.lake.records.documents import CutTable, Intent
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.lake.records.lease import Lease
from lakeproof.names import LAYERS, Layer, TableName


@dataclass(frozen=True, slots=True)
class _Log:
    """The log of one of a table's two Delta tables, and the cycle's commit to it."""

    layer: Layer
    path: str
    cleaned: CleanedLog
    commit: CommitInfo


@contextmanager
def hold_for_foreign_commits(table: TableName) -> Iterator[None]:
    """Turn a foreign commit or a log's gap in the block into TableHeldError: the table is held."""
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
    places = {layer: lake.url(lake.paths.layer(table, layer)) for layer in LAYERS}
    versions = {layer: NO_VERSION if before is None else before.version_of(layer) for layer in LAYERS}

    def is_ours(commit: DeltaCommit) -> bool:
        number = commit_number(commit, f"lakeproof/{lake.source}/")
        # If no cut has the table and later cycles have written it, its cuts were lost: a person looks at it.
        return number is not None and (before is not None or number <= intent.number)

    lease.check()
    logs = [
        _Log(
            layer,
            path,
            clean_log(path, versions[layer], is_ours),
            commit_of_cycle(lake.source, intent, layer, table),
        )
        for layer, path in places.items()
    ]
    for log in logs:
        if log.cleaned.foreign:
            _refuse(table, log, before, take_back=take_back)
        versions[log.layer] = log.cleaned.base
    for log in logs:
        if log.cleaned.foreign:
            lease.check()
            versions[log.layer] = _taken_back(log, table)
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
        # The lake's cycles are older than its table: a person looks at it.
        raise TableHeldError(str(table), HeldCause.FOREIGN_COMMIT, WayOut.BY_HAND, detail)
    if not take_back or any(map(log.commit.is_in, log.cleaned.foreign)):
        raise TableHeldError(str(table), HeldCause.FOREIGN_COMMIT, WayOut.SNAPSHOT, detail)


def _taken_back(log: _Log, table: TableName) -> int:
    """Make the table what it was before the foreign commits; returns the version that says so."""
    path, cleaned = log.path, log.cleaned
    try:
        return restore(path, cleaned.base, cleaned.newest, log.commit.user_metadata)
    except LogGapError:
        raise
    except LakeError as error:
        # What a writer refuses it refuses again, and a file that is gone stays gone.
        detail = {"problem": error.reason}
        raise TableHeldError(str(table), HeldCause.FOREIGN_COMMIT_STAYS, WayOut.BY_HAND, detail) from error
