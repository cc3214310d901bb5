"""How a source's newest snapshot stands: at work, or interrupted with tables left for another run.

Copying belongs to `copying.py`; a snapshot that is whole and waits for the lake to `status`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.snapshot.folder import finished_tables, missing_tables, read_ended, read_wanted, snapshot_folders
from lakeproof.snapshot.lock import holder
from lakeproof.snapshot.progress import Progress, read_progress
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store


@dataclass(frozen=True, slots=True)
class SnapshotStatus:
    """The newest snapshot, while one runs or tables are missing.

    `running` is None where the system can't tell; `holder` is who runs it, or ran it last. Of the `tables` that it was to
    copy, `tables_done` count, with so many `rows` and `bytes` of files; `progress` is what it says of itself while it runs.
    `missing` have no copy, of this snapshot or an earlier one; `interrupted` says why it ended before its end.
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
    progress: Progress | None


def snapshot_status(
    store: Store, paths: LakePaths, incarnation: Incarnation, *, locked: bool | None
) -> SnapshotStatus | None:
    """Look at the newest snapshot; None where it is whole, or there is none. Raises LakeError where it is damaged."""
    known = ((folder, read_wanted(store, paths, folder)) for folder in snapshot_folders(store, paths, incarnation))
    newest = max(((f, wanted) for f, wanted in known if wanted is not None), key=lambda pair: pair[0], default=None)
    if newest is None:
        return None
    folder, wanted = newest
    finished = finished_tables(store, paths, incarnation)
    missing = missing_tables(store, paths, incarnation, finished)
    if not missing and not locked:
        return None
    ended = read_ended(store, paths, folder)
    done = [found.table for found in finished.values() if found.key == folder]
    told = read_progress(Path(paths.url(paths.snapshot_progress))) if locked is not False else None
    return SnapshotStatus(
        running=locked,
        holder=holder(Path(paths.url(paths.snapshot_lock))),
        consistent_point=wanted.consistent_point,
        tables=len(wanted.tables),
        tables_done=len(done),
        rows=sum(table.rows for table in done),
        bytes=sum(chunk.bytes for table in done for chunk in table.chunks),
        missing=tuple(sorted(missing)),
        interrupted=None if ended is None else ended.interrupted,
        progress=told if told is not None and told.consistent_point == str(wanted.consistent_point) else None,
    )
