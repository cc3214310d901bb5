"""Copies a source's tables at one consistent point: the first time, and at every later re-snapshot.

Copying itself is in `lakeproof.snapshot.copy.copying`; the next compaction enters the copies into the lake.
The drain may run meanwhile, from the moment the landing has its head, so a long copy retains no WAL.

    the landing does not exist yet        the landing exists (or the lasting slot does, made by a DBA or left by a crash)
    ───────────────────────────────       ──────────────────────────────────────────────────────────────────────────────
    lasting slot with its snapshot at C   temporary slot with its snapshot at C; without a landing, the lasting slot's
    landing's head at C                   confirmed position becomes the head
    chunks, a part when a table is done   the same

Invariant handoff: the snapshot at C holds every commit that ends at or before C; the landing has every commit that ends
after its head, and the head is never after C. A crash at any point leaves nothing to clean up by hand: `incarnation.json`
records the intended slot (`lakeproof.snapshot.incarnation`), a temporary slot goes with its connection, and the next run,
which has the source's snapshots to itself (`lakeproof.snapshot.folder`), removes chunks that no part names.
Finished tables stay; tables that were not finished are copied at a later C, and so is a table that was truncated,
rewritten or renamed after C (`lakeproof.snapshot.attempts`).
"""

from __future__ import annotations

from collections.abc import Sequence

from lakeproof.config.model import Config
from lakeproof.descriptions import describe_quietly
from lakeproof.events import Report, Stop, silent
from lakeproof.names import TableName
from lakeproof.snapshot.run import SnapshotReport, copy_tables


def bootstrap(
    config: Config,
    name: str,
    tables: Sequence[TableName] | None = None,
    report: Report = silent,
    stop: Stop | None = None,
    *,
    again: bool | None = None,
) -> SnapshotReport:
    """Copy `tables` of the source `name` under one snapshot, or all published tables if None.

    A table that is being resumed is so no more once it is copied; one that is paused is refused, or left out of all of them.
    Tables that have a finished copy are left out, unless all have one. `again` copies them even if a finished copy exists.
    It defaults to true if `tables` is given.

    Raises ConfigError, SourceError, GapError and LakeError before anything is changed. Raises TransientError if the run was
    stopped, the connection was lost, another snapshot of the source is being copied, or other transactions or locks stood in
    the way for too long; NoRoomError if the disk is full; SnapshotIncompleteError (a TableError) after all other tables are
    complete.
    """
    result = copy_tables(config, name, tables, report, stop, again=again)
    describe_quietly(config, name, report)
    return result
