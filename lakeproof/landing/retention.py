"""Removes manifests that are no longer needed, with their files, in an order in which a crash does no harm.

`lakeproof.commands.maintain` decides what the lake still needs; `sweep.py` removes files that no manifest names.

    1 chain start    put if absent: from then on the chain begins there, for every reader and writer
    2 the files      of manifests below the start: rows, logical messages, fingerprints
    3 the manifests  below the start, and starts before it

If a run is killed at any point, the next one finds what lies below the start and removes it. The head stays, and so does
the manifest with the newest reading of the catalog from before what the stream brings next: it says what columns that has,
and the next reading is compared with it if there is no later one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import reduce

from lakeproof.failpoints import failpoint
from lakeproof.landing.catalog_history import catalog_manifests, catalog_manifests_around
from lakeproof.landing.chain import MANIFESTS_CHECKED_ON_OPEN, Chain
from lakeproof.landing.chain_start import ChainStart
from lakeproof.lsn import Lsn
from lakeproof.names import Oid, TableName
from lakeproof.storage.store import AlreadyExistsError, NotFoundError, Store
from lakeproof.storage.times import now_text, time_of

# So many tables without a copy are named: tables that lived for minutes are many in some databases.
UNREAD_MAX = 1000


@dataclass(frozen=True, slots=True)
class SpaceReclaimed:
    """Files and bytes that are, or would be, removed."""

    files: int = 0
    bytes: int = 0

    def plus(self, other: SpaceReclaimed) -> SpaceReclaimed:
        """Return the sum of both."""
        return SpaceReclaimed(self.files + other.files, self.bytes + other.bytes)


def summed(parts: Iterable[SpaceReclaimed]) -> SpaceReclaimed:
    """Return the sum of all parts."""
    return reduce(SpaceReclaimed.plus, parts, SpaceReclaimed())


def first_needed(chain: Chain, consumed: int, position: Lsn, older_than: datetime) -> int:
    """Return the number of the first manifest that has to stay; reads the manifests before it.

    The manifests before it are consumed (`consumed` is the first manifest that is not wholly in the lake), were written
    before `older_than`, and are not needed by anything that is read from `position` on.
    """
    limit = min(consumed, chain.newest.number - MANIFESTS_CHECKED_ON_OPEN, chain.number_after(position))
    read_until = chain.newest.catalog_lsn
    if read_until is not None:
        # What landed after the last reading of the catalog is compared with the next one.
        limit = min(limit, chain.number_after(max(read_until, chain.kept_from)))
    records = [m.number for m in catalog_manifests(chain, position) if m.number > 0]
    limit = min([limit, *records])
    number = chain.first_number
    while number < limit and time_of(chain.manifest(number).created_at) < older_than:
        number += 1
    return number


def put_chain_start(
    chain: Chain, number: int, in_lake: Mapping[Oid, Lsn] | None = None, *, unread_max: int = UNREAD_MAX
) -> None:
    """Step 1: let the chain begin at manifest `number` from now on.

    `in_lake` has the positions up to which histories have the changes of their tables, by the tables' OIDs; None: all have
    all.
    """
    manifest = chain.manifest(number)
    if manifest.previous_sha256 is None or number <= chain.first_number:
        return
    start = ChainStart(
        chain.incarnation,
        number,
        manifest.start_lsn,
        manifest.previous_sha256,
        manifest.first_ordinal,
        now_text(),
        _record_below(chain, number),
        *_unread(chain, number, in_lake, unread_max),
    )
    with suppress(AlreadyExistsError):
        chain.lake.store.put_if_absent(chain.lake.paths.chain_start(chain.incarnation, number), start.to_bytes())
    failpoint("maintain.after_start")


def _unread(
    chain: Chain, number: int, in_lake: Mapping[Oid, Lsn] | None, unread_max: int
) -> tuple[dict[TableName, Lsn], Lsn | None]:
    """Return the tables whose changes below manifest `number` no history has, with the last ends, and that of the others."""
    unread = {} if chain.start is None else dict(chain.start.unread)
    others = None if chain.start is None else chain.start.unread_others
    if in_lake is None:
        return unread, others
    for manifest in chain.manifests(chain.first_number):
        if manifest.number >= number:
            break
        end = manifest.end_lsn
        unread |= {file.table: end for file in manifest.files if in_lake.get(file.oid, Lsn.ZERO) < end}
    newest_first = sorted(unread, key=lambda table: unread[table], reverse=True)
    ends = [unread[table] for table in newest_first[unread_max:]] + ([] if others is None else [others])
    return {table: unread[table] for table in newest_first[:unread_max]}, max(ends, default=None)


def keys_before(chain: Chain, number: int) -> list[str]:
    """Return the keys below manifest `number`: files first, then manifests from the oldest on, then chain starts."""
    store, paths, incarnation = chain.lake.store, chain.lake.paths, chain.incarnation
    start = chain.start
    kept = {start.catalog if start is not None and start.number == number else _record_below(chain, number)}
    keys = [k for k in store.list(paths.data(incarnation)) if _number(k) < number]
    keys += [k for k in store.list(paths.catalogs(incarnation)) if _number(k) < number and _number(k) not in kept]
    keys += [k for k in store.list(paths.manifests(incarnation)) if 0 < _number(k) < number and _number(k) not in kept]
    return keys + [k for k in store.list(paths.chain_starts(incarnation)) if _number(k) < number]


def _record_below(chain: Chain, number: int) -> int | None:
    """Return the manifest below `number` that is kept for its record of the catalog, None if none is needed.

    It is the newest from before what the stream brings next. While a drain is behind, a later one is from after that.
    """
    needed = next(iter(catalog_manifests_around(chain, chain.end)), None)
    return needed.number if needed is not None and needed.number < number else None


def space_of(store: Store, keys: Iterable[str]) -> SpaceReclaimed:
    """Return how much space `keys` take; one that somebody else has removed meanwhile takes none."""
    total = SpaceReclaimed()
    for key in keys:
        with suppress(NotFoundError):
            total = total.plus(SpaceReclaimed(1, store.size(key)))
    return total


def remove_keys(store: Store, keys: Sequence[str]) -> SpaceReclaimed:
    """Remove `keys` in this order, durably; return the space reclaimed."""
    total = space_of(store, keys)
    for key in keys:
        store.delete(key)
    # A cut that came back after a power cut would name files that are gone.
    store.sync_names(keys)
    return total


def remove_below(chain: Chain, number: int) -> SpaceReclaimed:
    """Steps 2 and 3: remove what lies below a chain start's `number`; returns the space reclaimed."""
    keys = keys_before(chain, number)
    total = space_of(chain.lake.store, keys)
    for place, key in enumerate(keys):
        chain.lake.store.delete(key)
        if place == len(keys) // 2:
            failpoint("maintain.amid_manifests")
    return total


def _number(key: str) -> int:
    digits = key.rpartition("/")[2][:20]
    # A name without a number is not ours to remove.
    return int(digits) if len(digits) == 20 and digits.isascii() and digits.isdigit() else 1 << 63
