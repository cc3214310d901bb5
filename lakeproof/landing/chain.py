"""The chain of manifests: opened at its newest manifest, read, and extended by one manifest at a time.

`manifest.py` has a manifest's fields; `segment.py` writes the data files; `sweep.py` removes files that no manifest names.

Invariants: no-gap (each manifest starts where its predecessor ended, and carries its checksum) and the fence (a number is
given once, by put-if-absent: a writer that loses it has been replaced and must leave without acknowledging). Opening costs
one listing and the newest few manifests; `verify_chain` reads them all. Manifests never change, so a cycle, which goes over
its range several times, reads each manifest once (`read_once`); the manifests that were read on opening are kept for the
next look at the chain's end.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from lakeproof.errors import RECOVER, InvariantError, LakeError, TransientError
from lakeproof.landing.catalog_record import CatalogRecord
from lakeproof.landing.chain_start import NUMBERED, ChainStart, first_kept_number, read_chain_start
from lakeproof.landing.incarnation_record import has_head, incarnations
from lakeproof.landing.kept_manifests import KEPT_NAMES_MAX, KeptManifests
from lakeproof.landing.segments.manifest import BYTES_MAX, ChainSource, Manifest, ManifestKind, parse
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import AlreadyExistsError, NotFoundError, number_in
from lakeproof.storage.times import now_text

# Manifests checked on opening: a torn newest manifest shows by itself, a wrong one by its predecessor's checksum.
MANIFESTS_CHECKED_ON_OPEN = 3
# A listing is not atomic: beside a writer it may show a new manifest and miss the one before it.
_LISTINGS_MAX = 3
# A chain that finds nothing new is looked for elsewhere this often: after a long pause, the next manifest may have been
# removed, and newer ones are there.
LIST_S = 300.0
_REMEDY = f"restore the manifests from a backup, or {RECOVER}"


class FencedError(TransientError):
    """Another writer has taken the next number: this one has been replaced. It must not acknowledge anything."""


@dataclass(frozen=True, slots=True)
class NewHead:
    """The first manifest of a new chain: the slot's consistent point, the source, and the writer's 32 hexadecimal digits.

    `catalog` is the first reading, with the position up to which every commit is in it; its file must be durable.
    `first_ordinal` is above those of earlier incarnations.
    """

    start: Lsn
    source: ChainSource
    writer: str
    catalog: tuple[CatalogRecord, Lsn] | None = None
    first_ordinal: int = 0


class Chain:
    """One incarnation's chain up to the manifest that it was opened at, `refresh`ed to or `append`ed.

    `start` is None until manifests are removed. Not for several threads at a time, but for one thing: while one thread
    `append`s, another may read manifests, and sees the chain with the new one or without it.
    """

    def __init__(self, lake: SourceLake, incarnation: Incarnation, head: Manifest) -> None:
        self.lake = lake
        self.incarnation = incarnation
        self.head = head
        self.start: ChainStart | None = None
        self.newest = head
        self._newest_sha256 = ""
        self._kept: KeptManifests | None = None
        self._listed_s = time.monotonic()
        # Those read on opening, until the chain goes on: what looks at its end next need not read them again.
        self._opened: dict[int, tuple[Manifest, str]] = {}

    @classmethod
    def open(cls, lake: SourceLake, incarnation: Incarnation) -> Chain:
        """Open at the newest manifest; raises LakeError if there is no chain or it is damaged."""
        chain = cls(lake, incarnation, _read(lake, incarnation, 0)[0])
        chain._open_at(chain._newest_number())
        chain._sync_newest_name()
        return chain

    @classmethod
    def open_newest(cls, lake: SourceLake) -> Chain | None:
        """Open the newest incarnation's chain, None if the source has no landing; raises LakeError as `open`."""
        incarnation = newest_incarnation(lake)
        return None if incarnation is None else cls.open(lake, incarnation)

    @staticmethod
    def open_head(lake: SourceLake, incarnation: Incarnation) -> Manifest:
        """Return the head alone, even if later manifests are damaged; raises LakeError if the head is."""
        return _read(lake, incarnation, 0)[0]

    @classmethod
    def create(cls, lake: SourceLake, incarnation: Incarnation, new: NewHead) -> Chain:
        """Write the head at a slot's consistent point; raises LakeError if the incarnation has one."""
        record, read_until = (None, None) if new.catalog is None else new.catalog
        head = Manifest(
            ManifestKind.HEAD, 0, incarnation, new.first_ordinal, new.start, new.start, None, new.writer, now_text(),
            source=new.source, catalog=record, catalog_lsn=read_until,
        )  # fmt: skip
        key = lake.paths.manifest(incarnation, 0)
        try:
            lake.store.put_if_absent(key, head.to_bytes())
        except AlreadyExistsError:
            reason = "this incarnation has begun already"
            raise LakeError(lake.url(key), reason, "open it, or use the next number") from None
        return cls.open(lake, incarnation)

    @property
    def end(self) -> Lsn:
        """The end of the newest manifest: every commit up to here is durable."""
        return self.newest.end_lsn

    @property
    def first_number(self) -> int:
        """The number of the first manifest that is kept, beside the head."""
        return 0 if self.start is None else self.start.number

    @property
    def kept_from(self) -> Lsn:
        """Every commit after this position is still in the landing."""
        return self.head.end_lsn if self.start is None else self.start.start_lsn

    @property
    def next_number(self) -> int:
        """The number of the next manifest."""
        return self.newest.number + 1

    @property
    def next_ordinal(self) -> int:
        """The `first_ordinal` of the next manifest."""
        return self.newest.next_ordinal

    def manifest(self, number: int) -> Manifest:
        """Return one manifest; raises LakeError if it is missing or damaged."""
        return self._read(number)[0]

    @contextmanager
    def read_once(self, names_max: int = KEPT_NAMES_MAX) -> Iterator[None]:
        """Keep the manifests that are read in the block until it ends, so that none is read, parsed and hashed twice.

        The chain's beginning is read once as well: the caller holds the lease, under which manifests are removed.
        """
        before, self._kept = self._kept, KeptManifests(names_max)
        try:
            yield
        finally:
            self._kept = before

    def manifests(self, from_number: int = 0) -> Iterator[Manifest]:
        """Yield the kept manifests from `from_number` to the newest, each checked against the one before it."""
        previous: tuple[Manifest, str] | None = None
        for number in range(max(from_number, self.first_number), self.next_number):
            current = self._read(number)
            self._check_start(current[0])
            if previous is not None:
                self._check_continues(previous, current)
            yield current[0]
            previous = current

    def number_after(self, position: Lsn) -> int:
        """Return the number of the first manifest that ends after `position`, `next_number` if none does.

        Reads O(log n) manifests, fewer beside those that `read_once` keeps. Raises LakeError for a position whose manifests
        have been removed. A drain has its chain open for weeks, so each call first reads where the chain begins now.
        """
        self.reread_start()
        if self.start is not None and position < self.start.start_lsn:
            raise LakeError(
                f"{self.lake.source}: landing after {position}",
                f"it was removed up to {self.start.start_lsn}, as the retention says",
                "bootstrap the tables that need it again",
            )
        low, high = self.first_number, self.next_number
        if self._kept is not None:
            low, high = self._kept.around(position, low, high)
        while low < high:
            middle = (low + high) // 2
            if self.manifest(middle).end_lsn > position:
                high = middle
            else:
                low = middle + 1
        return low

    def between(self, start: Lsn, end: Lsn) -> Iterator[Manifest]:
        """Yield the manifests whose ranges overlap (start, end], in order."""
        for manifest in self.manifests(self.number_after(start)):
            if manifest.start_lsn >= end:
                return
            if manifest.kind is not ManifestKind.HEAD:
                yield manifest

    def refresh(self) -> None:
        """Read what another writer has appended; costs one look-up per new manifest, and a listing now and then.

        If this chain was left alone until the next manifest was removed, it is opened again where the chain is now.
        """
        before = self.newest.number
        while self.lake.store.exists(self.lake.paths.manifest(self.incarnation, self.next_number)):
            current = _read(self.lake, self.incarnation, self.next_number)
            self._check_continues((self.newest, self._newest_sha256), current)
            self.newest, self._newest_sha256 = current
            self._opened.clear()
        now_s = time.monotonic()
        if self.newest.number == before and now_s - self._listed_s >= LIST_S:
            self._listed_s = now_s
            if first_kept_number(self.lake, self.incarnation) > self.next_number:
                self._opened.clear()
                self._open_at(self._newest_number())
        if self.newest.number != before:
            self._sync_newest_name()

    def append(self, manifest: Manifest) -> Manifest:
        """Append a manifest durably; this sets its number and its predecessor's checksum.

        Raises FencedError if another writer has that number. Every file that `manifest` names must be durable.
        """
        numbered = replace(
            manifest, number=self.next_number, incarnation=self.incarnation, previous_sha256=self._newest_sha256
        )
        empty = numbered.end_lsn == numbered.start_lsn
        if (
            numbered.number != manifest.number
            or numbered.first_ordinal != self.next_ordinal
            or numbered.start_lsn != self.end
            or numbered.end_lsn < numbered.start_lsn
            or empty != (numbered.kind is ManifestKind.CATALOG)
        ):
            raise InvariantError(
                f"manifest {manifest.number} ({manifest.start_lsn}, {manifest.end_lsn}]",
                f"it does not continue the chain at {self.next_number}, {self.end}, ordinal {self.next_ordinal}",
                "report this",
            )
        data = numbered.to_bytes()
        key = self.lake.paths.manifest(self.incarnation, numbered.number)
        if len(data) > BYTES_MAX:
            raise LakeError(
                self.lake.url(key),
                f"its manifest would have {len(data)} bytes, and {BYTES_MAX} can be read",
                "nothing was acknowledged; report this, with how many tables changed their schema at once",
            )
        before = self.lake.paths.manifest(self.incarnation, self.newest.number)
        is_there = True
        try:
            self.lake.store.put_if_absent(key, data, follows=before)
        except AlreadyExistsError:
            raise FencedError(
                self.lake.url(key),
                "another writer has written this manifest of the chain",
                "nothing was acknowledged and nothing is lost; start again to go on from the chain's end",
            ) from None
        except NotFoundError:
            is_there = False
        if first_kept_number(self.lake, self.incarnation) > (numbered.number if is_there else self.newest.number):
            # The number had been given, and its manifest has been consumed and removed since.
            raise FencedError(
                self.lake.url(key),
                "the chain has gone on, and begins after this manifest by now",
                "nothing was acknowledged and nothing is lost; start again to go on from the chain's end",
            )
        if not is_there:
            raise LakeError(
                self.lake.url(before),
                "the landing's newest manifest is gone: the lake was moved away, or its volume is not mounted",
                "nothing was acknowledged; bring it back, or configure its new place, then start again",
            )
        self._opened.clear()
        self.newest, self._newest_sha256 = numbered, hashlib.sha256(data).hexdigest()
        return numbered

    def reread_start(self) -> None:
        """Read where the chain begins now, once in a block of `read_once`; costs one listing of a small folder."""
        if self._kept is not None:
            if self._kept.start_read:
                return
            self._kept.start_read = True
        if first_kept_number(self.lake, self.incarnation) > self.first_number:
            self.start = read_chain_start(self.lake, self.incarnation)

    def _read(self, number: int) -> tuple[Manifest, str]:
        """Return a manifest and its checksum, from the store unless `read_once` keeps it."""
        kept = None if self._kept is None else self._kept.manifests.get(number)
        if kept is None:
            kept = self._opened.get(number)
        if kept is not None:
            return kept
        read = _read(self.lake, self.incarnation, number)
        if self._kept is not None:
            self._kept.keep(read)
        return read

    def _newest_number(self) -> int:
        """Return the newest number from the names alone: a chain without holes has one name for each number."""
        folder = self.lake.paths.manifests(self.incarnation)
        for _ in range(_LISTINGS_MAX):
            # Manifests may be removed meanwhile. Below the chain's start there may be left-overs of a removal, or of a
            # writer that was left behind.
            self.reread_start()
            lowest = self.lake.paths.manifest(self.incarnation, self.first_number)
            keys = [key for key in self.lake.store.list(folder) if key >= lowest]
            foreign = next((key for key in keys if not NUMBERED.fullmatch(key.rpartition("/")[2])), None)
            if foreign is not None:
                raise LakeError(self.lake.url(foreign), "it is no manifest", "move the file away")
            newest = number_in(keys[-1]) if keys else -1
            if keys and len(keys) == newest + 1 - self.first_number:
                return newest
        reason = f"its newest manifest is {newest}, but there are {len(keys)} files in it"
        raise LakeError(self.lake.url(folder), reason if keys else "it has no manifest", _REMEDY)

    def _open_at(self, newest: int) -> None:
        first = max(self.first_number, newest - MANIFESTS_CHECKED_ON_OPEN)
        last = _read(self.lake, self.incarnation, first)
        self._check_start(last[0])
        self._opened[first] = last
        for number in range(first + 1, newest + 1):
            current = _read(self.lake, self.incarnation, number)
            self._check_continues(last, current)
            self._opened[number] = last = current
        self.newest, self._newest_sha256 = last

    def _sync_newest_name(self) -> None:
        """Make the newest manifest's name durable: its writer may have died between giving the name and syncing it."""
        self.lake.store.sync_names([self.lake.paths.manifest(self.incarnation, self.newest.number)])

    def _check_start(self, manifest: Manifest) -> None:
        """Raise LakeError if the first kept manifest is not the one that followed the removed ones."""
        start = self.start
        if start is None or manifest.number != start.number:
            return
        expected = (start.previous_sha256, start.start_lsn, start.first_ordinal)
        if (manifest.previous_sha256, manifest.start_lsn, manifest.first_ordinal) != expected:
            raise LakeError(
                self.lake.url(self.lake.paths.manifest(self.incarnation, manifest.number)),
                f"it does not follow the manifest that was removed before it (the chain begins at {start.start_lsn})",
                _REMEDY,
            )

    def _check_continues(self, previous: tuple[Manifest, str], current: tuple[Manifest, str]) -> None:
        before, sha256 = previous
        after = current[0]
        thing = self.lake.url(self.lake.paths.manifest(self.incarnation, after.number))
        if after.previous_sha256 != sha256:
            raise LakeError(thing, f"it does not carry the checksum of manifest {before.number} as stored", _REMEDY)
        if after.start_lsn != before.end_lsn:
            raise LakeError(
                thing, f"it starts at {after.start_lsn}, its predecessor ended at {before.end_lsn}", _REMEDY
            )
        if after.first_ordinal != before.next_ordinal:
            reason = f"its first ordinal is {after.first_ordinal}, behind its predecessor comes {before.next_ordinal}"
            raise LakeError(thing, reason, _REMEDY)


def newest_incarnation(lake: SourceLake) -> Incarnation | None:
    """Return the newest incarnation that has a head, None if the source has no landing."""
    return next((i for i in reversed(incarnations(lake)) if has_head(lake, i)), None)


def verify_chain(chain: Chain) -> int:
    """Read and check every manifest; returns how many. Raises LakeError at the first that is wrong."""
    return sum(1 for _ in chain.manifests(0))


def _read(lake: SourceLake, incarnation: Incarnation, number: int) -> tuple[Manifest, str]:
    key = lake.paths.manifest(incarnation, number)
    name = lake.url(key)
    try:
        data = lake.store.get(key)
    except NotFoundError:
        raise LakeError(f"manifest {name}", "it is missing", _REMEDY) from None
    manifest = parse(data, name)
    if (manifest.number, manifest.incarnation) != (number, incarnation):
        raise LakeError(
            f"manifest {name}", f"it says that it is {manifest.number} of incarnation {manifest.incarnation}", _REMEDY
        )
    return manifest, hashlib.sha256(data).hexdigest()
