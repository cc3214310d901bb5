"""Checks before every start that the slot and the landing meet (invariant no-gap).

Nothing is repaired here: `lakeproof.commands.recover` begins a new incarnation if they do not meet.

    chain's end:        ──────────────────────┤ E
    confirmed_flush:    ─────────────┤               normal: the server skips what the chain has
    confirmed_flush:    ───────────────────────────┤ a gap: the changes in between were thrown away
    server's own end:   ────────────┤                a gap: the server was restored and has another history
"""

from __future__ import annotations

from dataclasses import dataclass

from lakeproof.config.model import SourceConfig
from lakeproof.continuity.timeline import later_timeline
from lakeproof.errors import RECOVER, GapError, LakeError, TransientError
from lakeproof.landing.chain import Chain, FencedError
from lakeproof.landing.incarnation_record import has_head, incarnations, read_incarnation_record
from lakeproof.landing.timelines import Followed, record_followed
from lakeproof.lsn import Lsn
from lakeproof.postgres.connections.connect import Connection
from lakeproof.postgres.replication_slot import SlotState, read_slot, slot_problem
from lakeproof.postgres.server import ServerIdentity, identify, other_database


@dataclass(frozen=True, slots=True)
class SlotAndChain:
    """A slot and a chain that meet: the server, and the state of the slot, which may be in use."""

    server: ServerIdentity
    slot: SlotState


def check_no_gap(conn: Connection, source: SourceConfig, chain: Chain) -> SlotAndChain:
    """Compare chain, slot and server; `chain` is refreshed if another drain may have appended since it was opened.

    A later timeline that the landing may follow is recorded beside the chain; nothing else is written. Raises GapError if
    changes are or may be lost, SourceError for a slot that can't be used, LakeError if the landing belongs to another
    source, TransientError for a standby, which may be promoted.
    """
    server = identify(conn)
    pair, followed = compare(server, read_slot(conn, source.slot), source, chain)
    if followed is not None:
        # Before anything is read: once the landing has grown, its end says nothing about the switch any more.
        record_followed(chain, followed)
    return pair


def compare(
    server: ServerIdentity, slot: SlotState | None, source: SourceConfig, chain: Chain
) -> tuple[SlotAndChain, Followed | None]:
    """Compare a server and a slot, both seen after `chain` was opened or refreshed, with the chain; raise as `check_no_gap`.

    Also returns the later timeline that the landing may follow.
    """
    _check_newest(source, chain)
    check_server(server, source, chain)
    if server.in_recovery:
        reason = f"the server is a standby, on timeline {server.timeline}"
        raise TransientError(
            f"source {source.name}", reason, "promote it, or name the primary in the dsn; then try again"
        )
    followed = later_timeline(source, server, chain, has_reader=slot is not None and slot.active)
    if slot is None:
        raise GapError(
            f"slot {source.slot}",
            f"it does not exist; the landing ends at {chain.end}, the server's WAL at {server.current_lsn}: the changes"
            " between them are lost",
            f"{RECOVER}; if it was torn down for good, take the source out of the configuration",
        )
    problem = slot_problem(slot, server.database)
    if problem is not None and slot.lost:
        gap = f"the changes after the landing's end {chain.end}, up to {server.current_lsn} by now, are lost"
        raise GapError(problem.thing, f"{problem.reason}: {gap}", problem.remedy)
    if problem is not None:
        raise problem
    check_positions(server, slot, source, chain)
    return SlotAndChain(server, slot), followed


def _check_newest(source: SourceConfig, chain: Chain) -> None:
    """Refuse to continue an incarnation that has a successor: the slot of that name now belongs to the successor."""
    newest = max(incarnations(chain.lake), default=chain.incarnation)
    if newest <= chain.incarnation:
        return
    if has_head(chain.lake, newest):
        reason = f"incarnation {newest} has begun, this is one of {chain.incarnation}"
        raise FencedError(f"drain of {source.name}", reason, "start again to go on with the newer one")
    record = read_incarnation_record(chain.lake, newest)
    if record is not None and record.follows is not None:
        reason = (
            f"incarnation {newest} was about to begin: a recover is at work, or was killed; {record.follows.reason}"
        )
        raise GapError(f"source {source.name}", reason, RECOVER)


def check_server(server: ServerIdentity, source: SourceConfig, chain: Chain) -> None:
    """Raise GapError or LakeError if the landing belongs to another system, database, slot or publication."""
    head = chain.head.source
    thing = f"landing {chain.lake.url(chain.lake.paths.landing(chain.incarnation))}"
    if head is None:
        raise LakeError(thing, "its head does not say what it belongs to", "restore it from a backup")
    if head.system_id != server.system_id:
        raise GapError(
            f"source {source.name}",
            f"the server is system {server.system_id}, the landing belongs to {head.system_id}",
            f"correct the dsn; or, if the database has moved, {RECOVER}",
        )
    if head.database_oid != server.database_oid:
        reason = other_database("it", head.database, head.database_oid, server)
        raise LakeError(thing, reason, f"correct the dsn; or, if the database was recreated, {RECOVER}")
    for kind, landed, now in (
        ("slot", head.slot, source.slot),
        ("publication", head.publication, source.publication),
    ):
        if landed != now:
            raise LakeError(
                thing,
                f"it belongs to {kind} {landed!r}, the configuration says {now!r}",
                f"configure {landed!r} again; or, to begin anew with {now!r}, drop slot {head.slot}, then {RECOVER}",
            )


def check_positions(server: ServerIdentity, slot: SlotState, source: SourceConfig, chain: Chain) -> None:
    """Compare the three positions; raise GapError if they leave changes out. `chain` is refreshed as above."""
    # Compared before the chain is refreshed: the server's end was read after the chain's end was known.
    restored = chain.end > server.current_lsn
    confirmed = slot.confirmed_flush_lsn
    if confirmed is not None and confirmed > chain.end:
        # A working drain has appended and acknowledged since the chain was read.
        chain.refresh()
    if confirmed is not None and confirmed > chain.end:
        raise GapError(
            f"slot {slot.name}",
            f"it was moved to {confirmed}, the landing ends at {chain.end}:"
            f" the changes of {_bytes(confirmed, chain.end)} of WAL between them are lost"
            " (the slot was recreated or advanced elsewhere)",
            RECOVER,
        )
    if restored:
        raise GapError(
            f"source {source.name}",
            f"the server's WAL ends at {server.current_lsn}, the landing at {chain.end}: the server was restored"
            " to an earlier time",
            RECOVER,
        )


def _bytes(to: Lsn, since: Lsn) -> str:
    return f"{to - since} bytes"
