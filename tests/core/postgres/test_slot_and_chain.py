"""Slot and landing compared while another drain is at work: a newer slot is no gap if the chain has followed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from lakeproof.config.model import SourceConfig
from lakeproof.continuity.gap import check_positions
from lakeproof.errors import GapError
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.postgres.replication_slot import SlotState
from lakeproof.postgres.server import ServerIdentity
from lakeproof.state.slot import ServerSeen, slot_status
from tests.core.landing.landing_segments import HEAD, add_segment, new_chain, reopen

SOURCE = SourceConfig(name="shop", dsn=SecretStr("dbname=app"), publication=HEAD.publication, slot=HEAD.slot)


def _slot(confirmed: int) -> SlotState:
    return SlotState(
        name=HEAD.slot,
        plugin="pgoutput",
        slot_type="logical",
        database=HEAD.database,
        two_phase=False,
        temporary=False,
        active=True,
        active_pid=1,
        confirmed_flush_lsn=Lsn(confirmed),
        restart_lsn=Lsn(1),
        wal_status="reserved",
        safe_wal_size=None,
        invalidation_reason=None,
        retained_bytes=0,
        lag_bytes=0,
    )


def _server(end: int) -> ServerIdentity:
    return ServerIdentity(
        HEAD.system_id, HEAD.timeline, HEAD.database, HEAD.database_oid, 180006, Lsn(end), in_recovery=False
    )


def _compare(chain: Chain, *, confirmed: int, server_end: int) -> None:
    check_positions(_server(server_end), _slot(confirmed), SOURCE, chain)


def test_a_slot_that_another_drain_moved_meanwhile_is_no_gap(tmp_path: Path) -> None:
    """The chain was read before that drain appended and acknowledged; the server's end is older than both."""
    chain = new_chain(tmp_path / "lake")
    add_segment(reopen(chain), 2000)
    _compare(chain, confirmed=2000, server_end=1500)
    assert chain.end == Lsn(2000)


def test_a_slot_beyond_all_that_has_landed_is_a_gap(tmp_path: Path) -> None:
    """It is a gap even if the chain has gone on a little since it was read."""
    chain = new_chain(tmp_path / "lake")
    add_segment(reopen(chain), 2000)
    with pytest.raises(GapError, match="it was moved to 0/7D1, the landing ends at 0/7D0"):
        _compare(chain, confirmed=2001, server_end=3000)


def test_a_landing_beyond_the_server_is_a_gap(tmp_path: Path) -> None:
    """The server was restored; its slot may stand anywhere behind."""
    chain = new_chain(tmp_path / "lake")
    add_segment(chain, 2000)
    with pytest.raises(GapError, match="restored"):
        _compare(chain, confirmed=1500, server_end=1900)


@pytest.mark.parametrize(
    ("slot", "server", "reason"),
    [
        ({}, {}, None),
        ({"slot_type": "physical", "plugin": None, "confirmed_flush_lsn": None}, {}, "physical slot"),
        ({"plugin": "test_decoding"}, {}, "output plugin test_decoding"),
        ({"plugin": "test_decoding", "confirmed_flush_lsn": Lsn(9000)}, {}, "output plugin test_decoding"),
        ({"two_phase": True}, {}, "two_phase"),
        ({"wal_status": "lost", "two_phase": True}, {}, "invalidated"),
        (None, {"database_oid": HEAD.database_oid + 1}, "belongs to database"),
        (None, {"system_id": "1"}, "the server is system 1"),
        (None, {}, "it does not exist"),
    ],
)
def test_status_says_of_a_slot_what_a_drain_would_say(
    tmp_path: Path, slot: dict[str, Any] | None, server: dict[str, Any], reason: str | None
) -> None:
    """A slot of another kind has no position that could be compared; another server has none of ours."""
    chain = new_chain(tmp_path / "lake")
    add_segment(chain, 2000)
    state = None if slot is None else replace(_slot(1500), **slot)
    problem = slot_status(SOURCE, ServerSeen(replace(_server(3000), **server), state), chain).gap
    assert (problem is None) == (reason is None)
    assert problem is None or (reason is not None and reason in problem.reason)
