"""Slot and landing compared while another drain is at work: a newer slot is no gap if the chain has followed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from lakeproof.config.model import SourceConfig
from lakeproof.continuity.gap import check_positions
from lakeproof.errors import GapError
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.postgres.replication_slot import SlotState
from lakeproof.postgres.server import ServerIdentity
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


def _compare(chain: Chain, *, confirmed: int, server_end: int) -> None:
    server = ServerIdentity(
        HEAD.system_id, HEAD.timeline, HEAD.database, HEAD.database_oid, 180006, Lsn(server_end), in_recovery=False
    )
    check_positions(server, _slot(confirmed), SOURCE, chain)


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
