"""The lock that allows a source one snapshot at a time, and the cleanup that its holder may do.

Copying does not belong here; what the cleanup does to a folder is `folder.end_abandoned`.

The lock is the store's: in a local folder it is the kernel's, free at once when its process is killed. It is not only
politeness here: two runs at a time would sweep each other's files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakeproof.landing.incarnation_record import incarnations
from lakeproof.names import Incarnation
from lakeproof.snapshot.folder import SnapshotEnd, end_abandoned
from lakeproof.storage.source_lake import SourceLake


@contextmanager
def snapshot_lock(lake: SourceLake) -> Iterator[dict[Incarnation, list[SnapshotEnd]]]:
    """Hold the source's snapshot lock for the block; raise TransientError, naming the holder, if it is taken.

    First every snapshot whose writer was killed is ended and the files that no part names are removed. The block gets the
    ends of these snapshots, by incarnation.
    """
    thing, reason = f"snapshot of {lake.source}", "another snapshot is being copied"
    with lake.store.lock(lake.paths.snapshot_lock, thing, reason):
        yield {number: end_abandoned(lake, number) for number in incarnations(lake)}
