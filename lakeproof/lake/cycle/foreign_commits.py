"""Commits of others to a table of the lake: found before a cycle writes the table, taken back when a snapshot of it enters.

Taking our own out of the log, as far as no cut names them, belongs to `unnamed`; what a commit says of itself to
`delta_log`; what the snapshot corrects to `snapshot_entry`.

    V ── stray ── …                        the table is held at V: a cut names V, so readers never see the stray
    V ── stray ── RESTORE to V ── ours     a snapshot enters: both tables are what V was again, then the difference is made

Both tables are looked at before either is written, so a table that is held has no commit of the cycle. The RESTORE is the
cycle's own, known by its `userMetadata`, and made on the newest version or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakeproof.errors import TableError, TransientError, manual
from lakeproof.failpoints import failpoint
from lakeproof.lake.columns import quoted
from lakeproof.lake.delta.apply import conflicts
from lakeproof.lake.delta.commit import USER_METADATA, CommitInfo, commit_of_cycle, number_of
from lakeproof.lake.delta.log import NO_VERSION, Commit, LogGapError, StrayCommitError, find_commit
from lakeproof.lake.delta.unnamed_commits import Settled, settle
from lakeproof.lake.records.documents import RESNAPSHOT, CutTable, Intent
from lakeproof.lake.records.lease import Lease
from lakeproof.lake.spark.session import with_settings
from lakeproof.names import TableName
from lakeproof.storage.paths import LakePaths

_FILES_GONE = "Not all files from version"
_BY_HAND = f"see {manual('Running it', 'Someone else has committed to a table of the lake')}"


@contextmanager
def stray_commits_hold(paths: LakePaths, table: TableName) -> Iterator[None]:
    """Turn a stray commit or a log's gap that is met in the block into TableError: the table is held, the others go on."""
    try:
        yield
    except (StrayCommitError, LogGapError) as error:
        layer = "history" if error.thing == paths.url(paths.history(table)) else "current"
        # A copy begins a log that can't be read again. History's past is lost with it, so that is not done unasked.
        lost = layer == "history" and isinstance(error, LogGapError)
        remedy = (
            f"restore {error.thing} from a backup, or begin its history again: {RESNAPSHOT}" if lost else RESNAPSHOT
        )
        raise TableError(str(table), f"its {layer} table: {error.reason}", remedy) from None


def without_strays(
    session: SparkSession | None,
    lease: Lease,
    intent: Intent,
    table: TableName,
    before: CutTable | None,
    *,
    take_back: bool,
) -> CutTable | None:
    """`before` with the versions that the cycle writes on; what no cut names is taken out of both logs first.

    Raises TableError when somebody else has committed to one of both tables since, unless `take_back` undoes it.
    """
    paths = lease.paths
    places = {"history": paths.url(paths.history(table)), "current": paths.url(paths.current(table))}
    versions = dict.fromkeys(places, NO_VERSION)
    if before is not None:
        versions = {"history": before.history_version, "current": before.current_version}

    def is_ours(commit: Commit) -> bool:
        number = number_of(commit, f"lakeproof/{paths.source}/")
        # A table that no cut has, and which later cycles have written, is one whose cuts were lost: a person looks at it.
        return number is not None and (before is not None or number <= intent.number)

    lease.check()
    found = {layer: settle(session, path, versions[layer], is_ours) for layer, path in places.items()}
    for layer, at in found.items():
        if at.strays:
            _refuse(
                places[layer], layer, at, table, commit_of_cycle(paths.source, intent, layer, table), before, take_back
            )
        versions[layer] = at.base
    for layer, path in places.items():
        if found[layer].strays and session is not None:
            lease.check()
            commit = commit_of_cycle(paths.source, intent, layer, table)
            versions[layer] = _taken_back(session, path, found[layer], commit, table)
            failpoint("cycle.after_restore")
    if before is None:
        return None
    return replace(before, history_version=versions["history"], current_version=versions["current"])


def _refuse(  # noqa: PLR0917  the table's place, what is there, and what the cycle wants
    path: str, layer: str, at: Settled, table: TableName, ours: CommitInfo, before: CutTable | None, take_back: bool
) -> None:
    """Raise TableError unless the strays are to be taken back, and can be."""
    if before is None:
        raise TableError(str(table), f"in {path} there is a table that no cut names", f"move it away and {RESNAPSHOT}")
    told = f"its {layer} table: {at.strays[0].told}"
    if any(ours.is_followed_by(stray) for stray in at.strays):
        # Delta takes our commit for a repeat of that one, and skips it in silence.
        raise TableError(str(table), told, _BY_HAND)
    if not take_back or any(map(ours.is_in, at.strays)):
        raise TableError(str(table), told, RESNAPSHOT)


def _taken_back(session: SparkSession, path: str, at: Settled, commit: CommitInfo, table: TableName) -> int:
    """Make the table what it was before the strays; the version that says so."""
    try:
        with with_settings(session, {USER_METADATA: commit.user_metadata}), conflicts(path):
            session.sql(f"RESTORE TABLE delta.{quoted(path)} TO VERSION AS OF {at.base}")
    except (PySparkException, Py4JJavaError) as error:
        told = str(error).partition("\n")[0]
        # What Delta refuses it refuses again; whatever else it was (a full disk, a cancelled job) may have passed by then.
        refused = "DELTA_" in told or _FILES_GONE in told
        raise TableError(
            str(table), f"a commit of someone else can't be taken back: {told}", _BY_HAND if refused else RESNAPSHOT
        ) from error
    try:
        made = find_commit(path, at.strays[-1].version, lambda c: c.user_metadata == commit.user_metadata)[1]
    except StrayCommitError:
        made = None
    if made is None:
        raise TransientError(path, "someone else committed to the table meanwhile", "the next run finishes the cycle")
    return made.version
