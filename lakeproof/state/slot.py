"""A source's slot as its server has it: if it meets the landing, and how long it will last.

Judging how long belongs to `lakeproof.drain.slot_health`; every drain makes the whole comparison before it starts
(`lakeproof.continuity.gap`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from lakeproof.config.model import Config, SourceConfig
from lakeproof.continuity.gap import compare
from lakeproof.drain.slot_health import HealthCause, Level, SlotHealth, slot_health
from lakeproof.errors import LakeproofError, manual
from lakeproof.landing.chain import Chain
from lakeproof.landing.stuck import read_stuck
from lakeproof.postgres.connections.connect import Connection, connect
from lakeproof.postgres.connections.timeouts import Timeout, use_timeout
from lakeproof.postgres.replication_slot import SlotState, read_slot
from lakeproof.postgres.server import ServerIdentity, identify
from lakeproof.state.problem import Problem
from lakeproof.state.source_state import SourceState

# An answer takes milliseconds; whoever asks at intervals has other sources to ask.
TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class ServerSeen:
    """A server, and the source's slot on it, at one moment."""

    server: ServerIdentity
    slot: SlotState | None


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """A slot and how long it will last, both None if the slot does not exist.

    `has_landing`: the source has a landing. `gap` is the reason why no drain can continue, None if one can.
    """

    has_landing: bool
    state: SlotState | None
    health: SlotHealth | None
    gap: Problem | None

    def problems(self, source: SourceConfig) -> Iterator[Problem]:
        """Yield what somebody should see to: a gap, and what is an error of the slot's health."""
        if self.gap is not None:
            yield self.gap
        if self.health is None or self.health.level is not Level.ERROR or not self.has_landing:
            return
        # A lost slot is a gap, and a stuck stream a problem of its own.
        shown = (HealthCause.INVALIDATED, HealthCause.STUCK)
        reasons = [str(reason) for reason in self.health.reasons if reason.cause not in shown]
        remedy = f"see that its drain runs and keeps up, or tear it down ({manual('Running it', 'Disk')})"
        if reasons:
            yield Problem(f"slot {source.slot}", "; ".join(reasons), remedy, transient=False)


def see_server(conn: Connection, state: SourceState) -> ServerSeen:
    """Look at a server and the source's slot. Raises as `source_errors`.

    The landing's end is read first, since a server whose WAL ends before it was restored; its error is for who needs it.
    """
    with suppress(LakeproofError):
        _ = state.chain
    return ServerSeen(identify(conn), read_slot(conn, state.source.slot))


def ask_slot(config: Config, name: str, application: str) -> tuple[ServerSeen, SlotStatus]:
    """Ask a source's server about its slot, and judge it by the landing; for whoever asks again and again.

    A server that does not answer for TIMEOUT_S seconds is a TransientError. Raises as `connect` and `slot_status` do.
    """
    state = SourceState.of(config, name)
    with use_timeout(Timeout(TIMEOUT_S)), connect(state.source.dsn, application) as connection:
        seen = see_server(connection, state)
        return seen, slot_status(state.source, seen, state.chain)


def slot_status(source: SourceConfig, seen: ServerSeen, chain: Chain | None) -> SlotStatus:
    """Judge what was seen, after `chain` was opened, by the landing. Raises LakeError for a damaged manifest."""
    gap = None if chain is None else slot_gap(source, seen, chain)
    health = None if seen.slot is None else slot_health(seen.slot, seen.server.current_lsn, chain, source.health)
    return SlotStatus(chain is not None, seen.slot, health, gap)


def slot_gap(source: SourceConfig, seen: ServerSeen, chain: Chain) -> Problem | None:
    """Return why a drain would refuse the server or the slot, as far as it does without reading the stream."""
    try:
        compare(seen.server, seen.slot, source, chain)
    except LakeproofError as error:
        return Problem.of(error)
    return None


def remedy_if_stuck(chain: Chain | None) -> str | None:
    """Return the one remedy for everything that waits for the stream, None if the stream is not stuck."""
    stuck = None if chain is None else read_stuck(chain)
    return None if chain is None or stuck is None else stuck.error(chain.lake.source).remedy


def refuse_stuck(chain: Chain | None, slot: SlotState | None) -> None:
    """Raise the state as an error, with what the slot keeps meanwhile, if the stream is stuck."""
    stuck = None if chain is None else read_stuck(chain)
    if chain is None or stuck is None:
        return
    error = stuck.error(chain.lake.source)
    kept = None if slot is None else slot.retained_bytes
    if kept is None:
        raise error
    raise type(error)(error.thing, f"{error.reason}; meanwhile the slot keeps {kept:,} bytes of WAL", error.remedy)
