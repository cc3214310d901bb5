"""Removing links that are no longer needed, with their files: which ones, and in an order that a crash does no harm to.

What the lake still needs belongs to `lakeproof.commands.maintain`; what no link names to `sweep.py`.

    1 base       put if absent: from here on the chain begins there, for every reader and writer
    2 the files  of links below the base: rows, notes, fingerprints
    3 the links  below the base, and bases before it

Killed anywhere, the next run finds what lies below the base and removes it. The head stays, and so does the link with the
newest reading of the catalog: what follows is compared with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import reduce

from lakeproof.failpoints import failpoint
from lakeproof.landing.catalog_history import catalog_links, newest_link
from lakeproof.landing.chain import LINKS_CHECKED_ON_OPEN, Chain
from lakeproof.landing.chain_start import Base
from lakeproof.lsn import Lsn
from lakeproof.storage.fields import now_text, time_of
from lakeproof.storage.store import AlreadyExistsError, NotFoundError


@dataclass(frozen=True, slots=True)
class Freed:
    """How much is, or would be, removed."""

    files: int = 0
    bytes: int = 0

    def plus(self, other: Freed) -> Freed:
        """The sum."""
        return Freed(self.files + other.files, self.bytes + other.bytes)


def summed(parts: Iterable[Freed]) -> Freed:
    """All parts together."""
    return reduce(Freed.plus, parts, Freed())


def first_needed(chain: Chain, consumed: int, position: Lsn, older_than: datetime) -> int:
    """The first link that has to stay; reads the links before it.

    Those before it are consumed (`consumed` is the first link that is not wholly in the lake), were written before
    `older_than`, and nothing that is read from `position` on needs them.
    """
    limit = min(consumed, chain.newest.number - LINKS_CHECKED_ON_OPEN, chain.number_after(position))
    looked = chain.newest.catalog_lsn
    if looked is not None:
        # What landed after the last reading of the catalog is held against the next one.
        limit = min(limit, chain.number_after(max(looked, chain.kept_from)))
    records = [m.number for m in catalog_links(chain, position) if m.number > 0]
    limit = min([limit, *records])
    number = chain.first_number
    while number < limit and time_of(chain.manifest(number).created_at) < older_than:
        number += 1
    return number


def put_base(chain: Chain, number: int) -> None:
    """Step 1: the chain begins at link `number` from now on."""
    link = chain.manifest(number)
    if link.previous_sha256 is None or number <= chain.first_number:
        return
    base = Base(
        chain.incarnation, number, link.start_lsn, link.previous_sha256, now_text(), _record_below(chain, number)
    )
    with suppress(AlreadyExistsError):
        chain.store.put_if_absent(chain.paths.base(chain.incarnation, number), base.to_bytes())
    failpoint("maintain.after_base")


def below(chain: Chain, number: int) -> list[str]:
    """The keys of what lies below link `number`: files first, then links from the oldest on, then bases."""
    paths, incarnation = chain.paths, chain.incarnation
    base = chain.base
    named = base is not None and base.number == number and base.names_catalog
    kept = {base.catalog if base is not None and named else _record_below(chain, number)}
    keys = [k for k in chain.store.list(paths.data(incarnation)) if _number(k) < number]
    keys += [k for k in chain.store.list(paths.catalogs(incarnation)) if _number(k) < number and _number(k) not in kept]
    keys += [
        k for k in chain.store.list(paths.manifests(incarnation)) if 0 < _number(k) < number and _number(k) not in kept
    ]
    return keys + [k for k in chain.store.list(paths.bases(incarnation)) if _number(k) < number]


def _record_below(chain: Chain, number: int) -> int | None:
    """The link below `number` that stays for its record of the catalog: the newest one, unless a later link has one."""
    newest = newest_link(chain)
    return newest.number if newest is not None and newest.number < number else None


def freed(chain: Chain, keys: list[str]) -> Freed:
    """How much `keys` hold."""
    total = Freed()
    for key in keys:
        try:
            total = total.plus(Freed(1, chain.store.size(key)))
        except NotFoundError:
            continue
    return total


def remove_below(chain: Chain, number: int) -> Freed:
    """Steps 2 and 3; `number` must be that of a base."""
    keys = below(chain, number)
    total = freed(chain, keys)
    for place, key in enumerate(keys):
        chain.store.delete(key)
        if place == len(keys) // 2:
            failpoint("maintain.amid_links")
    return total


def _number(key: str) -> int:
    digits = key.rpartition("/")[2][:20]
    # What has no number is not ours to judge.
    return int(digits) if len(digits) == 20 and digits.isascii() and digits.isdigit() else 1 << 63
