"""The beginning of an incarnation: its record, its slot, its head, and whose the lake is.

Copying the tables into it belongs to `lakeproof.commands.bootstrap`; deciding that one is wanted to that and to
`lakeproof.commands.recover`.

    record (begin.json)  ─►  slot, made with a snapshot or found  ─►  source.json, once  ─►  head at the slot's point

Killed anywhere, the next run takes the same number up again: the record names the slot. A slot that a killed run had made
under a name that the configuration no longer has is dropped then, so no slot is left that nobody reads.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import suppress

from lakeproof.config.model import SourceConfig
from lakeproof.errors import RECOVER, LakeError, TransientError
from lakeproof.failpoints import failpoint
from lakeproof.landing.catalog_history import first_reading
from lakeproof.landing.chain import Chain, newest_incarnation
from lakeproof.landing.incarnation_record import Beginning, Follows, incarnations, unfinished
from lakeproof.landing.manifest import ChainSource
from lakeproof.landing.ownership import SourceDoc
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation
from lakeproof.postgres.catalog_fingerprint import Reading
from lakeproof.postgres.connection import Connection
from lakeproof.postgres.replication_slot import PLUGIN, drop_slot, read_slot
from lakeproof.postgres.server import ServerIdentity, other_database
from lakeproof.storage.fields import now_text
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import AlreadyExistsError, NotFoundError, Store


def next_incarnation(store: Store, paths: LakePaths, source: SourceConfig, server: ServerIdentity) -> Incarnation:
    """The number that `record` will give: a killed run's, where that was about to begin the same, else the next."""
    left = unfinished(store, paths)
    if left is not None and _same(left, source, server):
        return left.incarnation
    known = incarnations(store, paths)
    return Incarnation(known[-1] + 1 if known else 1)


def record(
    store: Store,
    paths: LakePaths,
    source: SourceConfig,
    server: ServerIdentity,
    *,
    makes_slot: bool,
    follows: Follows | None,
) -> Incarnation:
    """Put `begin.json`, and close the incarnation before by it; gives the number.

    Raises TransientError where another process has just taken the number.
    """
    number = next_incarnation(store, paths, source, server)
    document = Beginning(
        incarnation=number,
        system_id=server.system_id,
        database=server.database,
        database_oid=server.database_oid,
        slot=source.slot,
        publication=source.publication,
        makes_slot=makes_slot,
        follows=follows,
        created_at=now_text(),
    )
    left = unfinished(store, paths)
    if left is None or left.incarnation != number:
        try:
            store.put_if_absent(paths.beginning(number), document.to_bytes())
        except AlreadyExistsError:
            thing = f"source {source.name}: incarnation {number}"
            raise TransientError(
                thing, "another process is beginning it", "see whether it still runs, then try again"
            ) from None
    return number


def make_head(  # noqa: PLR0917  the same order as in `record`
    store: Store,
    paths: LakePaths,
    source: SourceConfig,
    server: ServerIdentity,
    incarnation: Incarnation,
    start: Lsn,
    reading: Reading,
) -> None:
    """The head of the chain at the slot's point, with a reading of the catalog: from here on the incarnation has begun."""
    told = ChainSource(
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
    catalog = first_reading(
        store, paths, incarnation, reading.fingerprint, writer, reading.settled, reading.noticed, rules
    )
    Chain.create(store, paths, incarnation, start=start, source=told, writer=writer, catalog=catalog)
    failpoint("bootstrap.after_head")


def drop_orphan(
    conn: Connection, left: Beginning | None, source: SourceConfig, server: ServerIdentity, in_use: Iterable[str]
) -> str | None:
    """Drop the slot that a killed run had made under another name; its name, None where there is none.

    Left alone are one on another system, one that is read, one of another kind, and those `in_use` by other sources.
    """
    if left is None or not left.makes_slot or left.slot == source.slot or left.slot in set(in_use):
        return None
    if (left.system_id, left.database_oid) != (server.system_id, server.database_oid):
        return None
    state = read_slot(conn, left.slot)
    if state is None or state.active or (state.plugin, state.database) != (PLUGIN, server.database):
        return None
    return left.slot if drop_slot(conn, left.slot) else None


def check_lake_is_ours(store: Store, paths: LakePaths, server: ServerIdentity) -> None:
    """Raise LakeError where the newest incarnation, or else `source.json`, is of another system or database.

    A database that was renamed is the same one.
    """
    found = _owner(store, paths)
    if found is None or (found.system_id, found.database_oid) == (server.system_id, server.database_oid):
        return
    if found.system_id != server.system_id:
        reason = f"it belongs to system {found.system_id}, the source is system {server.system_id}"
    else:
        reason = other_database("it", found.database, found.database_oid, server)
    remedy = f"correct the dsn, or use another lake or source name; or, if the database has moved, {RECOVER}"
    raise LakeError(f"lake {paths.url(paths.source)}", reason, remedy)


def _owner(store: Store, paths: LakePaths) -> ChainSource | SourceDoc | None:
    incarnation = newest_incarnation(store, paths)
    if incarnation is not None:
        return Chain.open_head(store, paths, incarnation).source
    key = paths.source_document
    try:
        return SourceDoc.from_bytes(store.get(key), paths.url(key))
    except NotFoundError:
        return None


def claim_lake(store: Store, paths: LakePaths, server: ServerIdentity) -> None:
    """Write `source.json` where there is none; raises LakeError where someone else's was there first."""
    document = SourceDoc(paths.source, server.system_id, server.database, server.database_oid, now_text())
    with suppress(AlreadyExistsError):
        store.put_if_absent(paths.source_document, document.to_bytes())
    check_lake_is_ours(store, paths, server)


def _same(left: Beginning, source: SourceConfig, server: ServerIdentity) -> bool:
    return (left.system_id, left.database_oid, left.slot, left.publication) == (
        server.system_id,
        server.database_oid,
        source.slot,
        source.publication,
    )
