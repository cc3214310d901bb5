"""The chain's records of the source's catalog: the newest fingerprint, the records from a position on, and adding one.

What a record says belongs to `catalog_record.py`, when one is made to `lakeproof.drain.catalog_watch`. A fingerprint's
file is named after its link, so the newest records are found by one listing; a file that its link does not name does
not exist.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping

from lakeproof.catalog.fingerprint import Fingerprint, parse_fingerprint
from lakeproof.errors import RECOVER, LakeError
from lakeproof.landing.catalog_record import CatalogRecord
from lakeproof.landing.chain import Chain
from lakeproof.landing.manifest import Kind, Manifest
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, Oid
from lakeproof.storage.fields import now_text
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import NotFoundError, Store

_NAME = re.compile(r"(?P<number>[0-9]{20})-[0-9a-f]{32}\.json")


def put_fingerprint(
    store: Store, paths: LakePaths, incarnation: Incarnation, fingerprint: Fingerprint, *, number: int, writer: str
) -> tuple[str, int, str]:
    """Make a fingerprint's file durable for link `number`; its path below the landing, bytes and SHA-256."""
    data = fingerprint.to_bytes()
    key = f"{paths.catalogs(incarnation)}/{number:020d}-{writer}.json"
    store.put(key, data)
    return key.removeprefix(paths.landing(incarnation) + "/"), len(data), hashlib.sha256(data).hexdigest()


def first_reading(  # noqa: PLR0917  put_fingerprint's, the two positions, and the rules
    store: Store,
    paths: LakePaths,
    incarnation: Incarnation,
    fingerprint: Fingerprint,
    writer: str,
    settled: Lsn,
    noticed: Lsn,
    rules: Mapping[str, int],
) -> tuple[CatalogRecord, Lsn]:
    """What the head of a chain to be is given: its fingerprint's file is durable afterwards."""
    put = put_fingerprint(store, paths, incarnation, fingerprint, number=0, writer=writer)
    return CatalogRecord(None, noticed, *put, rules=rules), settled


def append_catalog(chain: Chain, writer: str, catalog: CatalogRecord, catalog_lsn: Lsn) -> Manifest:
    """Add a link of its own for a reading, at the chain's end. Raises FencedError as `Chain.append`."""
    return chain.append(
        Manifest(
            kind=Kind.CATALOG,
            number=chain.next_number,
            incarnation=chain.incarnation,
            start_lsn=chain.end,
            end_lsn=chain.end,
            previous_sha256="",
            writer=writer,
            created_at=now_text(),
            catalog_lsn=catalog_lsn,
            catalog=catalog,
        )
    )


def newest_catalog(chain: Chain) -> Fingerprint | None:
    """The fingerprint of the newest record, None where the chain has none. Raises LakeError where it is damaged."""
    manifest = newest_link(chain)
    return None if manifest is None else read_fingerprint(chain, manifest)


def sends_everything(chain: Chain, oid: Oid) -> bool:
    """Whether, as far as is known, the stream has every insert, update, delete and truncate of a table."""
    fingerprint = newest_catalog(chain)
    table = None if fingerprint is None else fingerprint.tables.get(oid)
    return fingerprint is None or table is None or fingerprint.operations(table) == "iudt"


def newest_link(chain: Chain) -> Manifest | None:
    """The link with the newest record, which is kept also where the chain begins after it; None where there is none."""
    return next(_links(chain), None)


def catalog_links(chain: Chain, position: Lsn) -> list[Manifest]:
    """The links with a record that was noticed at or after `position`, in order.

    Not by where the link stands: a reading is made now, however far behind the chain is.
    """
    found: list[Manifest] = []
    for manifest in _links(chain):
        if manifest.catalog is None or manifest.catalog.noticed_lsn < position:
            break
        found.insert(0, manifest)
    return found


def links_around(chain: Chain, position: Lsn) -> list[Manifest]:
    """`catalog_links`, with the newest one that was noticed before `position` in front of them, where there is one."""
    found: list[Manifest] = []
    for manifest in _links(chain):
        found.insert(0, manifest)
        if manifest.catalog is not None and manifest.catalog.noticed_lsn < position:
            break
    return found


def read_fingerprint(chain: Chain, manifest: Manifest) -> Fingerprint:
    """The fingerprint that a link's record names. Raises LakeError where it is missing or damaged."""
    record = manifest.catalog
    if record is None:
        raise ValueError(f"link {manifest.number} has no record of the catalog")
    key = f"{chain.paths.landing(chain.incarnation)}/{record.path}"
    thing, remedy = f"fingerprint {chain.paths.url(key)}", f"restore this file from a backup, or {RECOVER}"
    try:
        data = chain.store.get(key)
    except NotFoundError:
        raise LakeError(thing, "it is missing", remedy) from None
    if hashlib.sha256(data).hexdigest() != record.sha256:
        raise LakeError(thing, "it does not have the checksum that its manifest says", remedy)
    try:
        return parse_fingerprint(data)
    except ValueError as error:
        raise LakeError(thing, str(error), remedy) from error


def _links(chain: Chain) -> Iterator[Manifest]:
    """Those with a record, the newest first: what is kept, and the one below the base that the base names.

    A writer that was left behind may have put a fingerprint below the base, and a link that names it: neither is read.
    """
    chain.rebase()
    folder = chain.paths.catalogs(chain.incarnation)
    names = {key.rpartition("/")[2] for key in chain.store.list(folder)}
    numbers = {int(match["number"]) for name in names if (match := _NAME.fullmatch(name))}
    first = chain.first_number
    kept = {n for n in numbers if first <= n < chain.next_number}
    for number in sorted(kept, reverse=True):
        manifest = chain.manifest(number)
        if manifest.catalog is not None:
            yield manifest
    below = _kept_below(chain, {n for n in numbers if n < first})
    if below is not None:
        yield chain.manifest(below)


def _kept_below(chain: Chain, numbers: set[int]) -> int | None:
    base = chain.base
    if base is None or base.names_catalog:
        return None if base is None else base.catalog
    # Format 1 did not name it. A fingerprint without its link was left by a writer that was killed.
    keys = {n: chain.paths.manifest(chain.incarnation, n) for n in sorted(numbers, reverse=True)}
    there = (n for n, key in keys.items() if chain.store.exists(key))
    return next((n for n in there if chain.manifest(n).catalog is not None), None)
