"""Making a cycle's files durable: neither Spark nor Delta syncs anything on a local disk.

When it is done belongs to `cycle`: after the tables' commits, before the cut.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

# File times are taken from a coarser clock than the intent's; a few files too many do no harm.
_CLOCK_SLACK_S = 5.0


def sync_tables(tables: Iterable[Path], root: Path, since: float) -> int:
    """Sync every file below `tables` written since (seconds since 1970), and their folders up to `root`; gives how many.

    A file of an attempt that was killed counts: it was written since its intent was.
    """
    folders: set[Path] = set()
    synced = 0
    for table in tables:
        for folder, _, names in os.walk(table):
            fresh = [p for n in names if _is_fresh(p := os.path.join(folder, n), since)]  # noqa: PTH118  one call per file
            for path in fresh:
                _sync(path)
            if fresh:
                folders |= _up_to(Path(folder), root)
            synced += len(fresh)
    for made in sorted(folders):
        _sync(made)
    return synced


def _is_fresh(path: str, since: float) -> bool:
    try:
        return os.stat(path).st_mtime >= since - _CLOCK_SLACK_S  # noqa: PTH116  one call per file, as above
    except FileNotFoundError:
        return False


def _up_to(folder: Path, root: Path) -> set[Path]:
    return {p for p in (folder, *folder.parents) if p == root or root in p.parents}


def _sync(path: str | Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
