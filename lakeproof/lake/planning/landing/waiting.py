"""Counts what has landed and is not in the lake yet, and decides when that is worth a cycle.

`lakeproof.follow.follower` runs the cycle.

A look costs one request per new manifest, and one for the next, which is not there yet; no listing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from lakeproof.config.section.upkeep import CompactionConfig
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.manifest import Manifest
from lakeproof.lsn import Lsn


@dataclass(frozen=True, slots=True)
class WaitingChanges:
    """Rows and bytes that wait; `since_s` is since when the first of them may wait, by the clock of whoever looks.

    `first_commit_us` is when the first of them was committed, in microseconds since 1970.
    """

    rows: int = 0
    bytes: int = 0
    since_s: float | None = None
    first_commit_us: int | None = None

    def are_worth_a_cycle(self, limits: CompactionConfig, now_s: float) -> bool:
        """True if there are many of them, or if one has waited for long enough."""
        if self.rows == 0 or self.since_s is None:
            return False
        return (
            self.rows >= limits.worth_rows
            or self.bytes >= limits.worth_bytes
            or now_s - self.since_s >= limits.worth_age_s
        )


@dataclass(frozen=True, slots=True)
class _Entry:
    end: Lsn
    rows: int
    bytes: int
    since_s: float
    first_commit_us: int | None


@dataclass(slots=True)
class LandingTail:
    """The end of one landing, from a position on: its manifests that have rows, oldest first.

    `looked_s` is the time of the last look. What is new at a look may have landed right after the look before: a cycle lies
    between the two, and what landed during it has waited for long enough. `newest_record` is the number of the newest
    manifest seen that has a record of the catalog.
    """

    chain: Chain
    looked_s: float
    newest_record: int | None = None
    _waiting: deque[_Entry] = field(default_factory=deque)

    @classmethod
    def after(cls, chain: Chain, position: Lsn, now_s: float) -> LandingTail:
        """Return the tail of a chain that was opened just now; raises LakeError for a position that was removed."""
        tail = cls(chain, now_s)
        tail._add(chain.between(position, chain.end))
        return tail

    def look(self, now_s: float) -> WaitingChanges:
        """Read what has landed since the last look, and return all that waits; raises LakeError for a damaged landing."""
        first = self.chain.next_number
        self.chain.refresh()
        # What was removed before anybody looked is in the lake.
        first = max(first, self.chain.first_number)
        self._add(self.chain.manifest(number) for number in range(first, self.chain.next_number))
        self.looked_s = now_s
        return self.waiting()

    def waiting(self) -> WaitingChanges:
        """Return what waited at the last look, without what was dropped since."""
        if not self._waiting:
            return WaitingChanges()
        first = self._waiting[0]
        rows, size = sum(entry.rows for entry in self._waiting), sum(entry.bytes for entry in self._waiting)
        return WaitingChanges(rows, size, first.since_s, first.first_commit_us)

    def drop_until(self, position: Lsn) -> None:
        """Forget what is in the lake now."""
        while self._waiting and self._waiting[0].end <= position:
            self._waiting.popleft()

    def _add(self, manifests: Iterable[Manifest]) -> None:
        for manifest in manifests:
            if manifest.catalog is not None:
                self.newest_record = manifest.number
            if manifest.rows:
                size = sum(file.bytes for file in manifest.files)
                self._waiting.append(
                    _Entry(manifest.end_lsn, manifest.rows, size, self.looked_s, manifest.first_commit_us)
                )
