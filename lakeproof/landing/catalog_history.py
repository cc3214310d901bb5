"""The chain's records of the source's catalog: the newest fingerprint, the records from a position on, adding one.

`catalog_record.py` has a record's fields; `lakeproof.drain.catalog.watch` decides when one is made. A fingerprint's file has
its manifest's number in its name, so one listing finds the newest records. A file that its manifest does not name does not
exist.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator

from lakeproof.catalog.fingerprint import Fingerprint, parse_fingerprint
from lakeproof.errors import RECOVER, LakeError
from lakeproof.landing.catalog_record import CatalogRecord, FirstReading
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.manifest import Manifest, ManifestKind
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, Oid, TableName
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import NotFoundError
from lakeproof.storage.times import now_text

_NAME = re.compile(r"(?P<number>[0-9]{20})-[0-9a-f]{32}\.json")


def put_fingerprint(
    lake: SourceLake, incarnation: Incarnation, fingerprint: Fingerprint, *, number: int, writer: str
) -> tuple[str, int, str]:
    """Store the file of manifest `number` durably; returns its path below the landing, its bytes and its SHA-256."""
    data = fingerprint.to_bytes()
    key = f"{lake.paths.catalogs(incarnation)}/{number:020d}-{writer}.json"
    lake.store.put(key, data)
    return key.removeprefix(lake.paths.landing(incarnation) + "/"), len(data), hashlib.sha256(data).hexdigest()


def first_reading(
    lake: SourceLake, incarnation: Incarnation, reading: FirstReading, writer: str
) -> tuple[CatalogRecord, Lsn]:
    """Store the fingerprint durably and return the catalog record, and the `catalog_lsn`, for the head of a new chain."""
    put = put_fingerprint(lake, incarnation, reading.fingerprint, number=0, writer=writer)
    return CatalogRecord(None, reading.upper_lsn, *put, rules=reading.rules), reading.lower_lsn


def append_catalog(chain: Chain, writer: str, catalog: CatalogRecord, catalog_lsn: Lsn) -> Manifest:
    """Append a manifest for a reading, at the chain's end. Raises FencedError as `Chain.append`."""
    return chain.append(
        Manifest(
            kind=ManifestKind.CATALOG,
            number=chain.next_number,
            incarnation=chain.incarnation,
            first_ordinal=chain.next_ordinal,
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
    """Return the fingerprint of the newest record, None if the chain has none. Raises LakeError if it is damaged."""
    manifest = newest_catalog_manifest(chain)
    return None if manifest is None else read_fingerprint(chain, manifest)


def gone_since(chain: Chain, tables: Collection[TableName], position: Lsn) -> set[TableName]:
    """Return the tables that were dropped, renamed or taken out since a position, by the newest record if it is later."""
    is_later = (chain.newest.catalog_lsn or Lsn.ZERO) >= position
    catalog = newest_catalog(chain) if tables and is_later else None
    return set() if catalog is None else {*tables} - {table.table for table in catalog.tables.values()}


def sends_everything(chain: Chain, oid: Oid) -> bool:
    """True if, by the newest record, the stream has every insert, update, delete and truncate of a table."""
    fingerprint = newest_catalog(chain)
    table = None if fingerprint is None else fingerprint.tables.get(oid)
    return fingerprint is None or table is None or fingerprint.operations(table) == "iudt"


def newest_catalog_manifest(chain: Chain) -> Manifest | None:
    """Return the manifest with the newest record, None if there is none. It is kept even below the chain's start."""
    return next(_with_records(chain), None)


def publications_read(chain: Chain, position: Lsn) -> tuple[set[str], Lsn]:
    """Return the publications with which the landing was read last, and since when, but no earlier than `position`.

    A session's first reading is recorded before anything that the session reads lands. Raises LakeError if a fingerprint is
    damaged.
    """
    names, since = set[str](), chain.end
    for index, manifest in enumerate(_with_records(chain)):
        recorded = read_fingerprint(chain, manifest).publication_names
        if index and recorded != names:
            break
        names, since = recorded, max(manifest.end_lsn, position)
        if since == position:
            break
    return names, since


def catalog_manifests(chain: Chain, position: Lsn) -> list[Manifest]:
    """Return the manifests whose record has its `upper_lsn` at or after `position`, in order.

    The manifest's own range does not matter: a reading is made now, however far behind the chain is.
    """
    manifests = catalog_manifests_around(chain, position)
    return [m for m in manifests if m.catalog is not None and m.catalog.upper_lsn >= position]


def catalog_manifests_around(chain: Chain, position: Lsn) -> list[Manifest]:
    """Return `catalog_manifests`, preceded by the newest manifest whose record's `upper_lsn` is before `position`."""
    manifests: list[Manifest] = []
    for manifest in _with_records(chain):
        manifests.insert(0, manifest)
        if manifest.catalog is not None and manifest.catalog.upper_lsn < position:
            break
    return manifests


def read_fingerprint(chain: Chain, manifest: Manifest) -> Fingerprint:
    """Return the fingerprint that a manifest's record names. Raises LakeError if it is missing or damaged."""
    record = manifest.catalog
    if record is None:
        raise ValueError(f"manifest {manifest.number} has no record of the catalog")
    key = f"{chain.lake.paths.landing(chain.incarnation)}/{record.path}"
    thing, remedy = f"fingerprint {chain.lake.url(key)}", f"restore this file from a backup, or {RECOVER}"
    try:
        data = chain.lake.store.get(key)
    except NotFoundError:
        raise LakeError(thing, "it is missing", remedy) from None
    if hashlib.sha256(data).hexdigest() != record.sha256:
        raise LakeError(thing, "it does not have the checksum that its manifest says", remedy)
    try:
        return parse_fingerprint(data)
    except ValueError as error:
        raise LakeError(thing, str(error), remedy) from error


def _with_records(chain: Chain) -> Iterator[Manifest]:
    """Yield the manifests with a record, newest first: the kept ones, then the one that the chain's start names.

    A writer that was left behind may have put a fingerprint below the start, and a manifest that names it. Neither is read.
    """
    chain.reread_start()
    folder = chain.lake.paths.catalogs(chain.incarnation)
    names = {key.rpartition("/")[2] for key in chain.lake.store.list(folder)}
    numbers = {int(match["number"]) for name in names if (match := _NAME.fullmatch(name))}
    for number in sorted((n for n in numbers if chain.first_number <= n < chain.next_number), reverse=True):
        manifest = chain.manifest(number)
        if manifest.catalog is not None:
            yield manifest
    if chain.start is not None and chain.start.catalog is not None:
        yield chain.manifest(chain.start.catalog)
