"""Going on in a Delta table whose log can't be read: a state without rows, above all that a cut names.

What is written on it belongs to `table_cycle`; taking commits that no cut names out of a sound log to `unnamed`.

    V-1 ── (V is damaged, or gone) ── V+1: a checkpoint without rows ── what a snapshot brings

The versions before keep their numbers and files: what older cuts name is never another table's, and whoever can still read
it reads what it was. A checkpoint needs nothing of the log before it, and that is what Delta begins with.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession

from lakeproof.errors import LakeError
from lakeproof.failpoints import failpoint
from lakeproof.lake.columns import current_statistics, history_statistics, in_lake
from lakeproof.lake.cycle.lost_history import can_be_read
from lakeproof.lake.cycle.task import CycleContext, Work
from lakeproof.lake.delta.commit import TableSpec
from lakeproof.lake.delta.files import table_files
from lakeproof.lake.delta.jvm import Jvm, forget
from lakeproof.lake.delta.log import LOG, LogGapError, commit_file, read_actions
from lakeproof.lake.delta.unnamed_commits import remove_above
from lakeproof.lake.fold.history import SNAPSHOT, state_rows
from lakeproof.lake.fold.net_change import NetChange
from lakeproof.lake.fold.table_state import empty_rows, with_net_change
from lakeproof.lsn import Lsn
from lakeproof.schema import SchemaVersion


def is_broken(path: str, version: int) -> bool:
    """Whether the log is damaged or not whole up to `version`, which a cut names; reads it from its last checkpoint on.

    A file that is there and can't be read just now (too many are open, a disk's error) is OSError: nothing is known then.
    """
    try:
        table_files(path, version)
    except LakeError:
        return True
    return False


def on_sound_logs(session: SparkSession, context: CycleContext, work: Work) -> Work:
    """The same on top of logs that can be read: if a copy enters, those that can't be are begun again without a row.

    A history that was lost and whose files somebody has restored is lost no more.
    Nothing is synced here: the cycle syncs what is above the cut's versions before the next cut names it.
    """
    at, paths = work.before, context.lease.paths
    if work.entering is None or at is None:
        return work
    current, history = paths.url(paths.current(work.table)), paths.url(paths.history(work.table))
    if work.history_lost and not is_broken(history, at.history_version):
        work = replace(work, history_lost=not can_be_read(session, paths, work.table, at))
    if is_broken(current, at.current_version):
        at = replace(at, current_version=_begin_again(session, context, work, "current", current, at.current_version))
        work = replace(work, before=at, anew=True)
    if is_broken(history, at.history_version):
        at = replace(at, history_version=_begin_again(session, context, work, "history", history, at.history_version))
        work = replace(work, before=at, history_lost=True)
    return work


def _begin_again(  # noqa: PLR0917  whose table, and which of its two it is
    session: SparkSession, context: CycleContext, work: Work, layer: str, path: str, version: int
) -> int:
    """Make the version after `version` a state without rows. What is above goes first: nobody can read that either."""
    log, following = Path(path) / LOG, version + 1
    context.lease.check()
    log.mkdir(parents=True, exist_ok=True)
    remove_above(path, version)
    # Delta reads an emptied file as a commit of nothing: without it what older cuts name is an error, and no other rows.
    for file in sorted(log.glob("[0-9]*.json")):
        try:
            read_actions(file)
        except LogGapError:
            file.unlink()
    note = context.commit_info(layer, work.table).user_metadata
    with TemporaryDirectory(prefix="lakeproof-log-") as place:
        _make(session, place, in_lake(work.version), layer, note)
        made = Path(place) / LOG
        shutil.copyfile(made / f"{0:020d}.checkpoint.parquet", log / f"{following:020d}.checkpoint.parquet")
        failpoint("cycle.after_checkpoint")
        size = json.loads((made / "_last_checkpoint").read_bytes())["size"]
        (log / "._last_checkpoint.crc").unlink(missing_ok=True)
        (log / "_last_checkpoint").write_text(json.dumps({"version": following, "size": size}), encoding="utf-8")
        shutil.copyfile(commit_file(place, 0), commit_file(path, following))
        failpoint("cycle.after_log_begun")
        forget(session, place)
    forget(session, path)
    return following


def _make(session: SparkSession, place: str, shape: SchemaVersion, layer: str, note: str) -> None:
    """Make a table without rows, and its checkpoint.

    Its commit has the cycle's note, and not the cycle's transaction: Delta would take the commit of the rows for a repeat.
    """
    rows = _nothing(session, shape, layer)
    writer = rows.write.format("delta").option("userMetadata", note).mode("append")
    statistics = history_statistics(shape) if layer == "history" else current_statistics(shape)
    writer.options(**TableSpec(statistics=statistics).options(rows.columns)).save(place)
    jvm = Jvm(session)
    jvm.delta.DeltaLog.forTable(jvm.jsession, place).checkpoint()


def _nothing(session: SparkSession, shape: SchemaVersion, layer: str) -> DataFrame:
    """No rows, with the columns of history or current."""
    rows = empty_rows(session, shape)
    if layer == "history":
        return state_rows(shape, rows, SNAPSHOT, Lsn.ZERO)
    return with_net_change(rows, NetChange(shape, None, None))
