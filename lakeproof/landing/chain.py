"""The chain of manifests: opened at its newest link, read, and extended by one link at a time.

What a manifest says belongs to `manifest.py`; the data files to `segment.py`; removing what nobody names to `sweep.py`.

Invariants: no-gap (each link starts where its predecessor ended, and carries its checksum) and the fence (a number is given
once, by put-if-absent: whoever loses it has been replaced and must leave without acknowledging). Opening costs one listing
and the newest few links; `verify_chain` reads them all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

from lakeproof.errors import RECOVER, InvariantError, LakeError, TransientError
from lakeproof.landing.catalog_record import CatalogRecord
from lakeproof.landing.chain_start import Base, newest_base_number, read_base
from lakeproof.landing.incarnation_record import has_head, incarnations
from lakeproof.landing.manifest import BYTES_MAX, ChainSource, Kind, Manifest, parse
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation
from lakeproof.storage.fields import now_text
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import AlreadyExistsError, NotFoundError, Store

# Links checked when a chain is opened: a torn newest link shows in it, a wrong one in its predecessor's checksum.
LINKS_CHECKED_ON_OPEN = 3
# A listing is not atomic: beside a writer it may show a new link and miss the one before it.
_LISTINGS_MAX = 3
_NAME_LENGTH = len("00000000000000000000.json")
_REMEDY = f"restore the manifests from a backup, or {RECOVER}"


class FencedError(TransientError):
    """Another writer has taken the next number: this one has been replaced. It must not acknowledge anything."""


class Chain:
    """One incarnation's chain, as far as it was when opened, `refresh`ed or `append`ed to.

    Not for several threads at a time.
    """

    def __init__(self, store: Store, paths: LakePaths, incarnation: Incarnation, head: Manifest) -> None:
        self.store = store
        self.paths = paths
        self.incarnation = incarnation
        self.head = head
        self.base: Base | None = None
        self.newest = head
        self._newest_sha256 = ""

    @classmethod
    def open(cls, store: Store, paths: LakePaths, incarnation: Incarnation) -> Chain:
        """Open at the newest link; raises LakeError where there is no chain or it is damaged."""
        chain = cls(store, paths, incarnation, _read(store, paths, incarnation, 0)[0])
        chain._open_at(chain._newest_number())
        chain._settle()
        return chain

    @classmethod
    def open_newest(cls, store: Store, paths: LakePaths) -> Chain | None:
        """Open the newest incarnation's chain, None where the source has no landing; raises LakeError as `open`."""
        incarnation = newest_incarnation(store, paths)
        return None if incarnation is None else cls.open(store, paths, incarnation)

    @staticmethod
    def open_head(store: Store, paths: LakePaths, incarnation: Incarnation) -> Manifest:
        """The head alone, also where what follows it is damaged; raises LakeError where it is itself."""
        return _read(store, paths, incarnation, 0)[0]

    @classmethod
    def create(
        cls,
        store: Store,
        paths: LakePaths,
        incarnation: Incarnation,
        *,
        start: Lsn,
        source: ChainSource,
        writer: str,
        catalog: tuple[CatalogRecord, Lsn] | None = None,
    ) -> Chain:
        """Write the head at a slot's consistent point; raises LakeError where the incarnation has one.

        `catalog` is the first reading, with the position up to which every commit is in it; its file must be durable.
        """
        record, looked = (None, None) if catalog is None else catalog
        head = Manifest(
            Kind.HEAD, 0, incarnation, start, start, None, writer, now_text(),
            source=source, catalog=record, catalog_lsn=looked,
        )  # fmt: skip
        key = paths.manifest(incarnation, 0)
        try:
            store.put_if_absent(key, head.to_bytes())
        except AlreadyExistsError:
            raise LakeError(
                paths.url(key), "this incarnation has begun already", "open it, or use the next number"
            ) from None
        return cls.open(store, paths, incarnation)

    @property
    def end(self) -> Lsn:
        """Where the newest link ends: every commit up to here is durable."""
        return self.newest.end_lsn

    @property
    def first_number(self) -> int:
        """The number of the first link that is kept, beside the head."""
        return 0 if self.base is None else self.base.number

    @property
    def kept_from(self) -> Lsn:
        """Every commit after this position is still in the landing."""
        return self.head.end_lsn if self.base is None else self.base.start_lsn

    @property
    def next_number(self) -> int:
        """The number of the next link."""
        return self.newest.number + 1

    def manifest(self, number: int) -> Manifest:
        """One link; raises LakeError where it is missing or damaged."""
        return _read(self.store, self.paths, self.incarnation, number)[0]

    def manifests(self, from_number: int = 0) -> Iterator[Manifest]:
        """The links from `from_number` (the first that is kept, at least) to the newest, each checked against the last."""
        previous: tuple[Manifest, str] | None = None
        for number in range(max(from_number, self.first_number), self.next_number):
            link = _read(self.store, self.paths, self.incarnation, number)
            self._check_base(link[0])
            if previous is not None:
                self._check_link(previous, link)
            yield link[0]
            previous = link

    def number_after(self, position: Lsn) -> int:
        """The first link that ends after `position`, `next_number` where none does; reads O(log n) links.

        Raises LakeError for a position whose links have been removed. A drain has its chain open for weeks, so what has been
        removed is looked at each time.
        """
        self.rebase()
        if self.base is not None and position < self.base.start_lsn:
            raise LakeError(
                f"{self.paths.source}: landing after {position}",
                f"it was removed up to {self.base.start_lsn}, as the retention says",
                "bootstrap the tables that need it again",
            )
        low, high = self.first_number, self.next_number
        while low < high:
            middle = (low + high) // 2
            if self.manifest(middle).end_lsn > position:
                high = middle
            else:
                low = middle + 1
        return low

    def between(self, start: Lsn, end: Lsn) -> Iterator[Manifest]:
        """The links whose ranges meet (start, end], in order."""
        for manifest in self.manifests(self.number_after(start)):
            if manifest.start_lsn >= end:
                return
            if manifest.kind is not Kind.HEAD:
                yield manifest

    def refresh(self) -> None:
        """See what another writer has appended; costs one look-up per new link."""
        before = self.newest.number
        while self.store.exists(self.paths.manifest(self.incarnation, self.next_number)):
            link = _read(self.store, self.paths, self.incarnation, self.next_number)
            self._check_link((self.newest, self._newest_sha256), link)
            self.newest, self._newest_sha256 = link
        if self.newest.number != before:
            self._settle()

    def append(self, manifest: Manifest) -> Manifest:
        """Add a link, durably; its number and predecessor's checksum are set here.

        Raises FencedError where someone else has that number. Everything `manifest` names must be durable.
        """
        link = replace(
            manifest, number=self.next_number, incarnation=self.incarnation, previous_sha256=self._newest_sha256
        )
        empty = link.end_lsn == link.start_lsn
        if (
            link.number != manifest.number
            or link.start_lsn != self.end
            or link.end_lsn < link.start_lsn
            or empty != (link.kind is Kind.CATALOG)
        ):
            raise InvariantError(
                f"link {manifest.number} ({manifest.start_lsn}, {manifest.end_lsn}]",
                f"it does not continue the chain at {self.next_number}, {self.end}",
                "report this",
            )
        data = link.to_bytes()
        key = self.paths.manifest(self.incarnation, link.number)
        if len(data) > BYTES_MAX:
            raise LakeError(
                self.paths.url(key),
                f"its manifest would have {len(data)} bytes, and {BYTES_MAX} can be read",
                "nothing was acknowledged; report this, with how many tables changed their shape at once",
            )
        try:
            self.store.put_if_absent(key, data)
        except AlreadyExistsError:
            raise FencedError(
                self.paths.url(key),
                "another writer has written this link of the chain",
                "nothing was acknowledged and nothing is lost; start again to go on from the chain's end",
            ) from None
        if newest_base_number(self.store, self.paths, self.incarnation) > link.number:
            # The number had been given, and its link has been consumed and removed since.
            raise FencedError(
                self.paths.url(key),
                "the chain has gone on, and begins after this link by now",
                "nothing was acknowledged and nothing is lost; start again to go on from the chain's end",
            )
        self.newest, self._newest_sha256 = link, hashlib.sha256(data).hexdigest()
        return link

    def rebase(self) -> None:
        """See where the chain begins by now; costs one listing of a small folder."""
        if newest_base_number(self.store, self.paths, self.incarnation) > self.first_number:
            self.base = read_base(self.store, self.paths, self.incarnation)

    def _newest_number(self) -> int:
        """From the names alone: a chain without holes has as many names from its first number on as there are numbers."""
        folder = self.paths.manifests(self.incarnation)
        for _ in range(_LISTINGS_MAX):
            # Links may be on their way out meanwhile; below the base there may be what a removal has left, or a writer
            # that was left behind has put.
            self.rebase()
            lowest = self.paths.manifest(self.incarnation, self.first_number)
            keys = [key for key in self.store.list(folder) if key >= lowest]
            newest = int(keys[-1][-_NAME_LENGTH:-5]) if keys and _is_manifest(keys[-1]) else -1
            if newest >= 0 and len(keys) == newest + 1 - self.first_number:
                return newest
        raise LakeError(
            self.paths.url(folder), f"its newest manifest is {newest}, but there are {len(keys)} files in it", _REMEDY
        )

    def _open_at(self, newest: int) -> None:
        first = max(self.first_number, newest - LINKS_CHECKED_ON_OPEN)
        last = _read(self.store, self.paths, self.incarnation, first)
        self._check_base(last[0])
        for number in range(first + 1, newest + 1):
            link = _read(self.store, self.paths, self.incarnation, number)
            self._check_link(last, link)
            last = link
        self.newest, self._newest_sha256 = last

    def _settle(self) -> None:
        """Make the newest link's name durable: its writer may have died between giving the name and syncing it."""
        self.store.settle([self.paths.manifest(self.incarnation, self.newest.number)])

    def _check_base(self, link: Manifest) -> None:
        """That the first link that is kept is the one that followed those that were removed."""
        base = self.base
        if base is None or link.number != base.number:
            return
        if (link.previous_sha256, link.start_lsn) != (base.previous_sha256, base.start_lsn):
            raise LakeError(
                self.paths.url(self.paths.manifest(self.incarnation, link.number)),
                f"it does not follow the link that was removed before it (its base says {base.start_lsn})",
                _REMEDY,
            )

    def _check_link(self, previous: tuple[Manifest, str], link: tuple[Manifest, str]) -> None:
        before, sha256 = previous
        after = link[0]
        thing = self.paths.url(self.paths.manifest(self.incarnation, after.number))
        if after.previous_sha256 != sha256:
            raise LakeError(thing, f"it does not carry the checksum of manifest {before.number} as stored", _REMEDY)
        if after.start_lsn != before.end_lsn:
            raise LakeError(
                thing, f"it starts at {after.start_lsn}, its predecessor ended at {before.end_lsn}", _REMEDY
            )


def newest_incarnation(store: Store, paths: LakePaths) -> Incarnation | None:
    """The newest incarnation that has a head; None where the source has no landing."""
    return next((i for i in reversed(incarnations(store, paths)) if has_head(store, paths, i)), None)


def verify_chain(chain: Chain, from_number: int = 0) -> int:
    """Read and check every link from `from_number`; gives how many. Raises LakeError at the first that is wrong."""
    return sum(1 for _ in chain.manifests(from_number))


def _read(store: Store, paths: LakePaths, incarnation: Incarnation, number: int) -> tuple[Manifest, str]:
    key = paths.manifest(incarnation, number)
    name = paths.url(key)
    try:
        data = store.get(key)
    except NotFoundError:
        raise LakeError(f"manifest {name}", "it is missing", _REMEDY) from None
    manifest = parse(data, name)
    if (manifest.number, manifest.incarnation) != (number, incarnation):
        raise LakeError(
            f"manifest {name}", f"it says that it is {manifest.number} of incarnation {manifest.incarnation}", _REMEDY
        )
    return manifest, hashlib.sha256(data).hexdigest()


def _is_manifest(key: str) -> bool:
    name = key.rpartition("/")[2]
    return len(name) == _NAME_LENGTH and name.endswith(".json") and name[:-5].isascii() and name[:-5].isdigit()
