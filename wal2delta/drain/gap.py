"""Whether the slot and the landing meet (invariant no-gap), looked at before every start.

Nothing is repaired here: docs/operations.md says how a source whose slot is lost begins again.

    chain's end:        ──────────────────────┤ E
    confirmed_flush:    ─────────────┤               normal: the server skips what the chain has
    confirmed_flush:    ───────────────────────────┤ a gap: what lies between was thrown away
    server's own end:   ────────────┤                a gap: the server was restored, its history is another one
"""

from __future__ import annotations

from dataclasses import dataclass

from wal2delta.config.model import SourceConfig
from wal2delta.errors import BEGIN_AGAIN, GapError, LakeError
from wal2delta.landing.chain import Chain
from wal2delta.lsn import Lsn
from wal2delta.postgres.connection import Connection
from wal2delta.postgres.server import ServerIdentity, identify
from wal2delta.postgres.slot import SlotState, read_slot, slot_problem


@dataclass(frozen=True, slots=True)
class Meeting:
    """A slot and a chain that meet: who the server is, and how the slot stood. The slot may be in use."""

    server: ServerIdentity
    slot: SlotState


def check_no_gap(conn: Connection, source: SourceConfig, chain: Chain) -> Meeting:
    """Compare chain, slot and server. `chain` is read on where another drain may have gone on since it was opened.

    Raises GapError where changes are or may be lost, SourceError for a slot that can't be used, LakeError where the
    landing belongs to another source.
    """
    server = identify(conn)
    _check_server(server, source, chain)
    slot = read_slot(conn, source.slot)
    if slot is None:
        raise GapError(
            f"slot {source.slot}",
            f"it does not exist; the landing ends at {chain.end}, and what came after is lost",
            BEGIN_AGAIN,
        )
    problem = slot_problem(slot, server.database)
    if problem is not None and slot.lost:
        raise GapError(problem.thing, f"{problem.reason}; the landing ends at {chain.end}", problem.remedy)
    if problem is not None:
        raise problem
    _check_positions(server, slot, source, chain)
    return Meeting(server, slot)


def _check_server(server: ServerIdentity, source: SourceConfig, chain: Chain) -> None:
    head = chain.head.source
    thing = f"landing {chain.paths.url(chain.paths.landing(chain.incarnation))}"
    if head is None:
        raise LakeError(thing, "its head does not say what it belongs to", "restore it from a backup")
    if head.system_id != server.system_id:
        raise GapError(
            f"source {source.name}",
            f"the server is system {server.system_id}, the landing belongs to {head.system_id}",
            f"correct the dsn; or, if the database has moved, {BEGIN_AGAIN}",
        )
    for what, landed, now in (
        ("database", head.database, server.database),
        ("slot", head.slot, source.slot),
        ("publication", head.publication, source.publication),
    ):
        if landed != now:
            raise LakeError(
                thing,
                f"it belongs to {what} {landed!r}, the configuration says {now!r}",
                f"correct the configuration, or {BEGIN_AGAIN}",
            )
    if head.timeline != server.timeline:
        raise GapError(
            f"source {source.name}",
            f"the server is on timeline {server.timeline}, the landing began on {head.timeline}:"
            " after a failover or a restore its history may be another one",
            BEGIN_AGAIN,
        )


def _check_positions(server: ServerIdentity, slot: SlotState, source: SourceConfig, chain: Chain) -> None:
    # Compared before anything is read on: the server's end was asked for after the chain's end was known.
    restored = chain.end > server.current_lsn
    confirmed = slot.confirmed_flush_lsn
    if confirmed is not None and confirmed > chain.end:
        # A drain that is at work has appended and told the slot since the chain was read.
        chain.refresh()
    if confirmed is not None and confirmed > chain.end:
        raise GapError(
            f"slot {slot.name}",
            f"it was moved to {confirmed}, the landing ends at {chain.end}:"
            f" the changes of {_bytes(confirmed, chain.end)} of WAL between them are lost"
            " (the slot was made again or advanced elsewhere)",
            BEGIN_AGAIN,
        )
    if restored:
        raise GapError(
            f"source {source.name}",
            f"the server's WAL ends at {server.current_lsn}, the landing at {chain.end}: the server was restored"
            " to an earlier time",
            BEGIN_AGAIN,
        )


def _bytes(to: Lsn, since: Lsn) -> str:
    return f"{to - since} bytes"
