"""One snapshot at a time of a source: the lock that its run holds, and what whoever gets it may put in order.

Copying belongs to `copying.py`, what is put in order to `lakeproof.snapshot.folder`.

The lock is the kernel's: a killed process lets go of it at once, so it needs no timeout. Weakness: as with the lake's
lease, where there is no `flock` (an object store) nothing keeps two runs apart; they would sweep each other's files.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lakeproof.landing.incarnation_record import incarnations
from lakeproof.names import Incarnation
from lakeproof.snapshot.folder import Ended, settle
from lakeproof.storage.fields import now_text
from lakeproof.storage.locks import exclusive
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store, make_root

_HOLDER_BYTES_MAX = 500


@contextmanager
def alone(store: Store, paths: LakePaths) -> Iterator[dict[Incarnation, list[Ended]]]:
    """Hold the source's snapshot lock for the block; raises TransientError, naming who has it, where it is taken.

    First every snapshot whose writer was killed is ended, and files that count for nothing are removed; the block is given
    those, by incarnation.
    """
    place = Path(paths.url(paths.snapshot_lock))
    reason = f"another one is being copied, by {holder(place) or 'a process that has not said which'}"
    make_root(paths.lake)
    with exclusive(place, f"snapshot of {paths.source}", reason):
        place.write_text(f"process {os.getpid()} on {socket.gethostname()} since {now_text()}", encoding="utf-8")
        yield {number: settle(store, paths, number) for number in incarnations(store, paths)}


def holder(place: Path) -> str | None:
    """Who holds the lock, or held it last, as it said of itself."""
    with suppress(OSError):
        with place.open("rb") as file:
            text = file.read(_HOLDER_BYTES_MAX)
        return text.decode("utf-8", "replace") or None
    return None
