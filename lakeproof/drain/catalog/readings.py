"""The readings of the source's catalog that lie around a position of the stream.

`watch.py` makes a reading; `lakeproof.catalog.attribute_numbers` derives a table's columns between two of them.

A reading is made now, while the stream may be hours behind. Every commit in it ends at or before its `upper_lsn`. The
reading after it adds that until that one's `lower_lsn` nothing differed. So for a transaction that ends at P

    upper_lsn < P               the reading is from before what the transaction did
    P ≤ the next's lower_lsn    the reading has all that the transaction did

Memory: the manifests in question, and `_KEPT` of their fingerprints.
"""

from __future__ import annotations

from collections import OrderedDict

from lakeproof.catalog.fingerprint import Fingerprint
from lakeproof.landing.catalog_history import catalog_manifests_around, read_fingerprint
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.manifest import Manifest
from lakeproof.lsn import Lsn

_KEPT = 4


class Readings:
    """The chain's records of the catalog, for the thread that extends the chain.

    Until `lower_lsn` nothing differs from the newest reading.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._manifests: list[Manifest] | None = None
        self._fingerprints: OrderedDict[int, Fingerprint] = OrderedDict()
        self.lower_lsn = chain.newest.catalog_lsn or Lsn.ZERO

    def add(self, manifest: Manifest, fingerprint: Fingerprint, lower_lsn: Lsn) -> None:
        """Add a reading that was just appended to the chain; it has every commit up to `lower_lsn`."""
        self._keep(manifest.number, fingerprint)
        self.lower_lsn = lower_lsn
        if self._manifests is not None:
            self._manifests.append(manifest)

    def around(self, position: Lsn) -> tuple[Fingerprint | None, Fingerprint | None, Lsn]:
        """Return the newest reading from before `position` and the oldest that has all up to it; None if there is none.

        The third value is the first reading's `upper_lsn`, zero if there is none. Raises LakeError if a fingerprint is
        missing or damaged.
        """
        manifests = self._around(position)
        before = [m for m in manifests if m.catalog is not None and m.catalog.upper_lsn < position]
        until = [*(_lower_lsn(m) for m in manifests[1:]), self.lower_lsn]
        after = [m for m, end in zip(manifests, until, strict=False) if position <= end]
        upper_lsn = max(map(_upper_lsn, before), default=Lsn.ZERO)
        return self._fingerprint(before[-1:]), self._fingerprint(after[:1]), upper_lsn

    def _around(self, position: Lsn) -> list[Manifest]:
        """Return the manifests from the newest before `position` on, in order; earlier ones are never needed again."""
        if self._manifests is None:
            self._manifests = catalog_manifests_around(self._chain, position)
        while len(self._manifests) > 1 and _upper_lsn(self._manifests[1]) < position:
            del self._manifests[0]
        return self._manifests

    def _fingerprint(self, manifests: list[Manifest]) -> Fingerprint | None:
        """Return the fingerprint of the first of these manifests."""
        if not manifests:
            return None
        number = manifests[0].number
        fingerprint = self._fingerprints.get(number) or read_fingerprint(self._chain, manifests[0])
        self._keep(number, fingerprint)
        return fingerprint

    def _keep(self, number: int, fingerprint: Fingerprint) -> None:
        self._fingerprints[number] = fingerprint
        self._fingerprints.move_to_end(number)
        while len(self._fingerprints) > _KEPT:
            self._fingerprints.popitem(last=False)


def _lower_lsn(manifest: Manifest) -> Lsn:
    return Lsn.ZERO if manifest.catalog is None or manifest.catalog.lower_lsn is None else manifest.catalog.lower_lsn


def _upper_lsn(manifest: Manifest) -> Lsn:
    return Lsn.ZERO if manifest.catalog is None else manifest.catalog.upper_lsn
