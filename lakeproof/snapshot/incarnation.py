"""The start of an incarnation: its record, its slot, the head of its chain, and the owner of the lake.

    record (incarnation.json) ─► slot, created with a snapshot or existing ─► source.json, once ─► head at the slot's point

If a run is killed anywhere here, the next run continues with the same number: the record names the slot. If the killed run
created a slot under a name that the configuration no longer has, that slot is dropped, so no slot is left without a reader.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from lakeproof.config.model import SourceConfig
from lakeproof.errors import RECOVER, LakeError, TransientError
from lakeproof.failpoints import failpoint
from lakeproof.field_types import Count
from lakeproof.landing.catalog_history import first_reading
from lakeproof.landing.catalog_record import FirstReading
from lakeproof.landing.chain import Chain, NewHead, newest_incarnation
from lakeproof.landing.incarnation_record import (
    Follows,
    IncarnationRecord,
    create_incarnation_record,
    incarnations,
    read_incarnation_record,
    unfinished,
)
from lakeproof.landing.segments.manifest import ChainSource
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation
from lakeproof.postgres.catalog.fingerprint import CatalogReading
from lakeproof.postgres.connections.connect import Connection
from lakeproof.postgres.replication_slot import PLUGIN, drop_slot, read_slot
from lakeproof.postgres.server import ServerIdentity, other_database
from lakeproof.snapshot.context import SnapshotContext
from lakeproof.storage.document import Document
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import AlreadyExistsError
from lakeproof.storage.times import now_text


@dataclass(frozen=True, slots=True)
class SourceDoc(Document):
    """The owner of a lake: `system_id` and `database` are IDENTIFY_SYSTEM's; the database is identified by its OID."""

    FORMAT = "lakeproof.source/1"

    source: str
    system_id: str
    database: str
    database_oid: Count
    created_at: str


def next_incarnation(lake: SourceLake, source: SourceConfig, server: ServerIdentity) -> Incarnation:
    """Return the number for `create_incarnation`: that of a killed run for the same source and slot, else the next one."""
    left = unfinished(lake)
    if left is not None and _is_same_source(left, source, server):
        return left.incarnation
    existing = incarnations(lake)
    return Incarnation(existing[-1] + 1 if existing else 1)


def create_incarnation(
    context: SnapshotContext, server: ServerIdentity, *, creates_slot: bool, follows: Follows | None
) -> Incarnation:
    """Put `incarnation.json`, which also closes the previous incarnation, and return the number.

    Raises TransientError if another process has just taken the number.
    """
    lake, source = context.lake, context.source
    left, number = unfinished(lake), next_incarnation(lake, source, server)
    if left is not None and left.incarnation == number:
        return number
    document = IncarnationRecord(
        incarnation=number,
        system_id=server.system_id,
        database=server.database,
        database_oid=server.database_oid,
        slot=source.slot,
        publication=source.publication,
        creates_slot=creates_slot,
        follows=follows,
        created_at=now_text(),
    )
    try:
        create_incarnation_record(lake, document)
    except AlreadyExistsError:
        thing = f"source {source.name}: incarnation {number}"
        raise TransientError(
            thing, "another process is beginning it", "see whether it still runs, then try again"
        ) from None
    return number


def create_chain(
    context: SnapshotContext, incarnation: Incarnation, server: ServerIdentity, start: Lsn, reading: CatalogReading
) -> None:
    """Create the chain with its head at the slot's point, with a reading of the catalog: the incarnation has begun then."""
    lake, source = context.lake, context.source
    chain_source = ChainSource(
        server.system_id,
        server.timeline,
        server.database,
        server.database_oid,
        source.slot,
        source.publication,
        server.version,
    )
    writer = secrets.token_hex(16)
    rules = dict.fromkeys(reading.rules, reading.horizon)
    record = read_incarnation_record(lake, incarnation)
    follows = None if record is None else record.follows
    first = FirstReading(reading.fingerprint, reading.lower_lsn, reading.upper_lsn, rules)
    catalog = first_reading(lake, incarnation, first, writer)
    ordinal = 0 if follows is None else follows.first_ordinal
    Chain.create(lake, incarnation, NewHead(start, chain_source, writer, catalog, ordinal))
    failpoint("bootstrap.after_head")


def drop_orphan_slot(
    conn: Connection,
    left: IncarnationRecord | None,
    source: SourceConfig,
    server: ServerIdentity,
    in_use: Iterable[str],
) -> str | None:
    """Drop the slot that a killed run created under another name; return its name, or None if there is none.

    A slot on another system, one with a reader, one of another kind and those `in_use` by other sources are left alone.
    """
    if left is None or not left.creates_slot or left.slot == source.slot or left.slot in set(in_use):
        return None
    if (left.system_id, left.database_oid) != (server.system_id, server.database_oid):
        return None
    state = read_slot(conn, left.slot)
    if state is None or state.active or (state.plugin, state.database) != (PLUGIN, server.database):
        return None
    return left.slot if drop_slot(conn, left.slot) else None


def check_lake_is_ours(lake: SourceLake, server: ServerIdentity) -> None:
    """Raise LakeError if the newest incarnation, or else `source.json`, names another system or database.

    A renamed database is still the same database.
    """
    owner = _owner(lake)
    if owner is None or (owner.system_id, owner.database_oid) == (server.system_id, server.database_oid):
        return
    if owner.system_id != server.system_id:
        reason = f"it belongs to system {owner.system_id}, the source is system {server.system_id}"
    else:
        reason = other_database("it", owner.database, owner.database_oid, server)
    remedy = f"correct the dsn, or use another lake or source name; or, if the database has moved, {RECOVER}"
    raise LakeError(f"lake {lake.url(lake.source)}", reason, remedy)


def _owner(lake: SourceLake) -> ChainSource | SourceDoc | None:
    incarnation = newest_incarnation(lake)
    if incarnation is not None:
        return Chain.open_head(lake, incarnation).source
    return SourceDoc.read(lake.store, lake.paths.source_document)


def claim_lake(lake: SourceLake, server: ServerIdentity) -> None:
    """Write `source.json` if there is none; raise LakeError if another source's came first."""
    document = SourceDoc(lake.source, server.system_id, server.database, server.database_oid, now_text())
    with suppress(AlreadyExistsError):
        lake.store.put_if_absent(lake.paths.source_document, document.to_bytes())
    check_lake_is_ours(lake, server)


def _is_same_source(left: IncarnationRecord, source: SourceConfig, server: ServerIdentity) -> bool:
    return (left.system_id, left.database_oid, left.slot, left.publication) == (
        server.system_id,
        server.database_oid,
        source.slot,
        source.publication,
    )
