"""Copy a source's tables at one consistent point: the first time, and every later re-snapshot.

Copying itself belongs to `lakeproof.snapshot.copying`, entering the lake to the next compaction. The drain may run
meanwhile, from the moment the landing has its head, so a long copy retains no WAL.

    the landing does not exist yet        the landing exists (or the lasting slot does, made by a DBA or left by a crash)
    ───────────────────────────────       ──────────────────────────────────────────────────────────────────────────────
    lasting slot with its snapshot at C   temporary slot with its snapshot at C; without a landing, the lasting slot's
    landing's head at C                   confirmed position becomes the head
    chunks, a part when a table is done   the same

Invariant handoff: the snapshot at C holds every commit that ends at or before C; the landing has every one that ends
after its head, and the head is never after C. A crash at any place leaves nothing to clean up by hand: `begin.json`
records the intended slot (`lakeproof.snapshot.incarnation`), a temporary slot goes with its connection, and chunks that
no part names are removed by the next run, which has the source's snapshots to itself (`lakeproof.snapshot.lock`).
Tables that were finished stay; those that were not are copied at a later C, and so is one that moved after C
(`lakeproof.snapshot.attempts`).
"""

from __future__ import annotations

from collections.abc import Sequence

from lakeproof.config.model import Config
from lakeproof.events import Report, Stop, silent
from lakeproof.names import TableName
from lakeproof.snapshot.run import Bootstrap, SnapshotReport
from lakeproof.storage.disk import disk_error


def bootstrap(
    config: Config,
    name: str,
    tables: Sequence[TableName] | None = None,
    report: Report = silent,
    stop: Stop | None = None,
    *,
    again: bool | None = None,
) -> SnapshotReport:
    """Copy `tables` of the source `name` under one snapshot, or all that is published where None.

    Where some of these have a finished copy and others have none, or an interrupted one, only those others, unless all are
    to be copied `again`; which where it is not said is so for tables that are named.

    Raises ConfigError, SourceError, GapError and LakeError before anything is changed; TransientError where it was stopped,
    where the connection was lost, where another snapshot of the source is being copied, or where other transactions or
    locks stood in the way for too long; NoRoomError where the disk is full;
    SnapshotIncompleteError (a TableError) after all other tables are complete.
    """
    try:
        return Bootstrap(config, config.source(name), report, stop or Stop()).run(tables, again=again)
    except OSError as error:
        raise disk_error(f"lake {config.lake}", "reading or writing it", error) from error
