"""The lock that allows a source one snapshot at a time, and the cleanup that its holder may do.

Copying does not belong here; what the cleanup does to a folder is `folder.end_abandoned`.

The lock is the kernel's: it is free at once when its process is killed, so it needs no timeout. Known weakness: as with the
lake's lease, nothing keeps two runs apart without `flock` (in an object store); they would sweep each other's files.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lakeproof.landing.incarnation_record import incarnations
from lakeproof.names import Incarnation
from lakeproof.snapshot.folder import SnapshotEnd, end_abandoned
from lakeproof.storage.fields import now_text
from lakeproof.storage.locks import exclusive
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store, make_root

_HOLDER_BYTES_MAX = 500


@contextmanager
def snapshot_lock(store: Store, paths: LakePaths) -> Iterator[dict[Incarnation, list[SnapshotEnd]]]:
    """Hold the source's snapshot lock for the block; raise TransientError, naming the holder, if it is taken.

    First every snapshot whose writer was killed is ended and the files that no part names are removed. The block gets the
    ends of those snapshots, by incarnation.
    """
    lock_file = Path(paths.url(paths.snapshot_lock))
    reason = f"another snapshot is being copied, by {holder(lock_file) or 'an unnamed process'}"
    make_root(paths.lake)
    with exclusive(lock_file, f"snapshot of {paths.source}", reason):
        lock_file.write_text(f"process {os.getpid()} on {socket.gethostname()} since {now_text()}", encoding="utf-8")
        yield {number: end_abandoned(store, paths, number) for number in incarnations(store, paths)}


def holder(lock_file: Path) -> str | None:
    """Return who holds the lock, or held it last, in that process's own words."""
    with suppress(OSError):
        with lock_file.open("rb") as file:
            text = file.read(_HOLDER_BYTES_MAX)
        return text.decode("utf-8", "replace") or None
    return None
