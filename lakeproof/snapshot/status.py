"""The state of a source's newest snapshot: running, or interrupted with tables left for another run.

Copying does not belong here, nor does a complete snapshot that waits for the lake: `lakeproof.commands.status` shows that.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.snapshot.folder import finished_tables, missing_tables, read_end, read_request, snapshot_folders
from lakeproof.snapshot.progress import CopyProgress, read_progress
from lakeproof.storage.source_lake import SourceLake


@dataclass(frozen=True, slots=True)
class SnapshotStatus:
    """The newest snapshot, while it runs or while tables are missing.

    `running` is None if the system can't tell; `holder` is who runs it, or ran it last. `tables` were requested,
    `tables_done` of them are complete, with `rows` and `bytes` of files; `progress` is what the run reports of itself.
    `missing` have no copy from this snapshot or an earlier one; `interrupted` is why it ended before its end.
    """

    running: bool | None
    holder: str | None
    consistent_point: Lsn
    tables: int
    tables_done: int
    rows: int
    bytes: int
    missing: tuple[TableName, ...]
    interrupted: str | None
    progress: CopyProgress | None


def snapshot_status(lake: SourceLake, incarnation: Incarnation, *, locked: bool | None) -> SnapshotStatus | None:
    """Read the newest snapshot's state; None if it is complete or there is none. Raises LakeError if it is damaged."""
    requests = ((folder, read_request(lake, folder)) for folder in snapshot_folders(lake, incarnation))
    newest = max(((f, request) for f, request in requests if request is not None), key=lambda p: p[0], default=None)
    if newest is None:
        return None
    folder, request = newest
    finished = finished_tables(lake, incarnation)
    missing = missing_tables(lake, incarnation, finished)
    if not missing and not locked:
        return None
    end = read_end(lake, folder)
    done = [copy.table for copy in finished.values() if copy.key == folder]
    progress = read_progress(lake) if locked is not False else None
    return SnapshotStatus(
        running=locked,
        holder=lake.store.lock_holder(lake.paths.snapshot_lock),
        consistent_point=request.consistent_point,
        tables=len(request.tables),
        tables_done=len(done),
        rows=sum(table.rows for table in done),
        bytes=sum(chunk.bytes for table in done for chunk in table.chunks),
        missing=tuple(sorted(missing)),
        interrupted=None if end is None else end.interrupted,
        progress=progress
        if progress is not None and progress.consistent_point == str(request.consistent_point)
        else None,
    )
