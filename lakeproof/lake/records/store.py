"""Intents and cuts in the store: the newest ones, those at a position or a time, and writing the next.

The documents' fields are in `documents`, snapshots in `lakeproof.snapshot.folder`.
"""

from __future__ import annotations

import hashlib
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

from lakeproof.errors import LakeError
from lakeproof.lake.records.cuts.documents import NAMED_MIN, document_of, load_cut_doc, open_cut
from lakeproof.lake.records.documents import Cut, Intent
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import Store, get_or_none, number_in, put_new
from lakeproof.storage.times import time_of

# Earlier than every commit: the time of a cut without one.
_EARLIEST = datetime.min.replace(tzinfo=timezone.utc)


# The newest number that this process has met in a folder of intents or cuts, by the folder's place: they follow each other,
# so the next look costs no listing.
_newest: dict[str, int] = {}


def newest_number(store: Store, folder: str) -> CycleNumber:
    """Return the greatest number in a folder of intents or cuts, 0 if it is empty; raises LakeError for a foreign file."""
    place, number = store.url(folder), _newest.get(store.url(folder), 0)
    if number and store.exists(_key(folder, number)):
        while store.exists(_key(folder, number + 1)):
            number += 1
    else:
        keys = store.list(folder)
        number = number_in(keys[-1]) if keys else 0
    _newest[place] = number
    return CycleNumber(number)


def _key(folder: str, number: int) -> str:
    return f"{folder}/{number:012d}.json"


def read_cut(lake: SourceLake, number: CycleNumber) -> Cut:
    """Read one cut, at the price of one small document; raises LakeError if it is missing or damaged."""
    doc = load_cut_doc(lake, number)
    if doc is None:
        raise LakeError(f"{lake.source}: cut {number}", "there is no such cut", "ask for a cut that exists")
    return open_cut(lake, doc)


def newest_cut(lake: SourceLake) -> Cut | None:
    """Return the source's newest cut; None if no cycle has ended."""
    number = newest_number(lake.store, lake.paths.cuts)
    return read_cut(lake, number) if number else None


def cut_at(lake: SourceLake, position: Lsn) -> Cut:
    """Return the newest cut at or before `position`; raises LakeError if there is none. Reads O(log n) cuts.

    Positions grow with the numbers within an incarnation; only the newest incarnation's cuts count.
    """
    numbers = cut_numbers(lake)
    newest = read_cut(lake, numbers[-1]) if numbers else None

    def place(number: CycleNumber) -> int:
        cut = read_cut(lake, number)
        return int(cut.position) if newest is not None and cut.incarnation == newest.incarnation else -1

    index = bisect_right(numbers, int(position), key=place)
    if index and place(numbers[index - 1]) >= 0:
        return read_cut(lake, numbers[index - 1])
    remedy = "ask for a later position, or compact first"
    if newest is not None and newest.incarnation > 1:
        remedy = f"positions are those of incarnation {newest.incarnation}; open a cut of an older one by its number"
    raise LakeError(f"{lake.source}: cuts", f"there is no cut at or before {position}", remedy)


def cut_at_time(lake: SourceLake, time: datetime) -> Cut:
    """Return the newest cut with no transaction that committed after `time`; raises LakeError if there is none.

    A cut's commit time is the greatest so far, so it grows with the numbers. Reads O(log n) cuts.
    """
    numbers = cut_numbers(lake)
    index = bisect_right(numbers, time, key=lambda n: _commit_time(read_cut(lake, n)))
    if index:
        return read_cut(lake, numbers[index - 1])
    raise LakeError(
        f"{lake.source}: cuts",
        f"there is no cut at or before {time.isoformat()}",
        "ask for a later time, or compact first",
    )


def cut_numbers(lake: SourceLake) -> list[CycleNumber]:
    """Return the numbers of the cuts that are kept, ascending and without holes; raises LakeError for a foreign file."""
    return [CycleNumber(number_in(key)) for key in lake.store.list(lake.paths.cuts)]


def cut_after(lake: SourceLake, cut: Cut | None) -> Cut | None:
    """Return the cut that follows `cut`, the very first one after None; None if there is none yet."""
    number = CycleNumber(1 if cut is None else cut.number + 1)
    return read_cut(lake, number) if lake.store.exists(lake.paths.cut(number)) else None


def read_intent(lake: SourceLake, number: CycleNumber) -> tuple[Intent, str] | None:
    """Read one intent; returns it and its SHA-256, None if there is none."""
    key = lake.paths.intent(number)
    data = get_or_none(lake.store, key)
    if data is None:
        return None
    intent = Intent.from_bytes(data, lake.url(key))
    if intent.number != number:
        raise LakeError(lake.url(key), f"it says that it is intent {intent.number}", "restore it from a backup")
    return intent, hashlib.sha256(data).hexdigest()


def write_intent(lake: SourceLake, intent: Intent) -> str:
    """Put the intent, durably, and return its SHA-256. Raises TransientError if another process has taken the number."""
    data = intent.to_bytes()
    put_new(lake.store, lake.paths.intent(intent.number), data, f"{lake.source}: intent {intent.number}")
    return hashlib.sha256(data).hexdigest()


def write_cut(lake: SourceLake, cut: Cut, named_min: int = NAMED_MIN) -> None:
    """Put the cut, durably, after what it names. Raises TransientError if another process has ended the cycle."""
    data = document_of(lake, cut, named_min).to_bytes()
    put_new(lake.store, lake.paths.cut(cut.number), data, f"{lake.source}: cut {cut.number}")


def _commit_time(cut: Cut) -> datetime:
    return _EARLIEST if cut.commit_time is None else time_of(cut.commit_time)


# Cuts are listed again this often: after a long pause, the next one may have been removed, and newer ones are there.
_LIST_S = 300.0


@dataclass(slots=True)
class CutTail:
    """The newest cut that was seen; not for several threads at a time."""

    lake: SourceLake
    cut: Cut | None = None
    clock: Callable[[], float] = time.monotonic
    _listed_s: float | None = None

    def look(self) -> Cut | None:
        """Return the newest cut, None if there is none yet; raises LakeError for a damaged one."""
        now_s = self.clock()
        if self.cut is None or self._listed_s is None or now_s - self._listed_s >= _LIST_S:
            self._listed_s, self.cut = now_s, newest_cut(self.lake)
            return self.cut
        number = self.cut.number
        while self.lake.store.exists(self.lake.paths.cut(CycleNumber(number + 1))):
            number = CycleNumber(number + 1)
        if number != self.cut.number:
            self.cut = read_cut(self.lake, number)
        return self.cut
