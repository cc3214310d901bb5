"""The readings of the source's catalog that lie around a position of the stream.

Making one belongs to `lakeproof.drain.catalog_watch`, what a table looked like in between to
`lakeproof.catalog.attribute_numbers`.

A reading is made now, and the stream may be hours behind. Of each it is known that every commit in it ends at or before
`noticed`, and, from the one after it, that until its `since` nothing differed. So for a transaction that ends at P

    noticed < P     the reading is from before what the transaction did
    P ≤ since       the reading before that one has all that it did

Memory: the links in question, and `_KEPT` of their fingerprints.
"""

from __future__ import annotations

from collections import OrderedDict

from lakeproof.catalog.fingerprint import Fingerprint
from lakeproof.landing.catalog_history import links_around, read_fingerprint
from lakeproof.landing.chain import Chain
from lakeproof.landing.manifest import Manifest
from lakeproof.lsn import Lsn

_KEPT = 4


class Readings:
    """The chain's records of the catalog, for the thread that extends the chain."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._links: list[Manifest] | None = None
        self._fingerprints: OrderedDict[int, Fingerprint] = OrderedDict()
        # Until here nothing differs from the newest reading.
        self.settled = chain.newest.catalog_lsn or Lsn.ZERO

    def add(self, link: Manifest, fingerprint: Fingerprint, settled: Lsn) -> None:
        """Take a reading that has just become a link; every commit up to `settled` is in it."""
        self._keep(link.number, fingerprint)
        self.settled = settled
        if self._links is not None:
            self._links.append(link)

    def around(self, position: Lsn) -> tuple[Fingerprint | None, Fingerprint | None, Lsn]:
        """The newest reading from before `position`, and the oldest that has all up to it; None where there is none.

        With where the first was noticed (zero where there is none). Raises LakeError where a fingerprint is missing or
        damaged.
        """
        links = self._around(position)
        before = [link for link in links if link.catalog is not None and link.catalog.noticed_lsn < position]
        until = [*(_since(link) for link in links[1:]), self.settled]
        after = [link for link, end in zip(links, until, strict=False) if position <= end]
        noticed = max(map(_noticed, before), default=Lsn.ZERO)
        return self._fingerprint(before[-1:]), self._fingerprint(after[:1]), noticed

    def _around(self, position: Lsn) -> list[Manifest]:
        """In order, from the newest from before `position` on: of an earlier one nobody asks any more."""
        if self._links is None:
            self._links = links_around(self._chain, position)
        while len(self._links) > 1 and _noticed(self._links[1]) < position:
            del self._links[0]
        return self._links

    def _fingerprint(self, links: list[Manifest]) -> Fingerprint | None:
        return self._read(links[0]) if links else None

    def _read(self, link: Manifest) -> Fingerprint:
        known = self._fingerprints.get(link.number)
        if known is None:
            known = read_fingerprint(self._chain, link)
        self._keep(link.number, known)
        return known

    def _keep(self, number: int, fingerprint: Fingerprint) -> None:
        self._fingerprints[number] = fingerprint
        self._fingerprints.move_to_end(number)
        while len(self._fingerprints) > _KEPT:
            self._fingerprints.popitem(last=False)


def _since(link: Manifest) -> Lsn:
    return Lsn.ZERO if link.catalog is None or link.catalog.since_lsn is None else link.catalog.since_lsn


def _noticed(link: Manifest) -> Lsn:
    return Lsn.ZERO if link.catalog is None else link.catalog.noticed_lsn
