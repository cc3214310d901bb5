"""Keeps a drain informed of the newest cut's position, which it reports to the server as replayed.

Reporting it does not belong here (`lakeproof.drain.loop`). The lake may hang: a thread of its own looks, and the drain has
the position that was seen last.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lakeproof.config.location import LakeLocation
from lakeproof.drain.pulse import Pulse
from lakeproof.errors import LakeproofError
from lakeproof.lake.records.store import CutTail
from lakeproof.landing.chain import newest_incarnation
from lakeproof.storage.open import folder_to_check
from lakeproof.storage.source_lake import SourceLake

# The pause between two looks: a look at a file in a folder, a request on an object store.
LOOK_S, LOOK_S_REMOTE = 1.0, 5.0


@contextmanager
def applied_is_known(location: LakeLocation, source: str, pulse: Pulse) -> Iterator[None]:
    """Keep `pulse.applied` at the newest cut's position while the block runs; None if there is none of this landing."""
    ended = threading.Event()
    tail = CutTail(SourceLake.open(location, source))
    pause_s = LOOK_S_REMOTE if folder_to_check(location) is None else LOOK_S

    def work() -> None:
        number = None
        while not ended.wait(pause_s):
            try:
                cut = tail.look()
                if cut is not None and cut.number != number:
                    is_ours = cut.incarnation == newest_incarnation(tail.lake)
                    pulse.applied = cut.position if is_ours else None
                    number = cut.number
            except (LakeproofError, OSError):
                # The compaction reports what is wrong with a cut; until then the position stays.
                continue

    thread = threading.Thread(target=work, name="lakeproof applied", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
