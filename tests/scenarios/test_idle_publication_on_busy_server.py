"""A publication is idle while the rest of its server writes: the slot moves all the same, and WAL is not kept for it."""

from __future__ import annotations

import pytest
from typing_extensions import LiteralString

from lakeproof.landing.segments.manifest import ManifestKind
from tests.support.ingest.fix_drain import Drained, told_to_stop, wait_until
from tests.support.servers.fix_postgres import new_database

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
ROUNDS = 4
ROUND_BYTES = 16 << 20


def test_the_slot_follows_and_wal_is_bounded(drained: Drained) -> None:
    """Another database writes 64 MB: confirmed_flush_lsn and restart_lsn follow, by manifests without files."""
    drained.database.execute("CREATE TABLE items (id int PRIMARY KEY)")
    start = drained.begin()
    with new_database(drained.database.server) as other, drained.running("stopped", progress_interval_s=0.2) as process:
        other.execute("CREATE TABLE noise (x text); ALTER TABLE noise ALTER x SET STORAGE EXTERNAL")
        for _ in range(ROUNDS):
            other.execute("INSERT INTO noise SELECT repeat('x', 8000) FROM generate_series(1, 2100)")
            end = other.end_of_flushed_wal()
            wait_until(lambda end=end: drained.confirmed_flush() >= end)  # type: ignore[misc]  # a default of a lambda
            # The checkpoint records for the slot that nothing is running, which lets restart_lsn follow.
            other.execute("CHECKPOINT")
        wait_until(lambda: _retained(drained) < ROUND_BYTES)
        assert drained.database.end_of_wal() - start > ROUNDS * ROUND_BYTES
        told_to_stop(process)
    manifests = list(drained.chain().manifests(1))
    assert manifests
    assert {manifest.kind for manifest in manifests} == {ManifestKind.PROGRESS}
    assert drained.confirmed_flush() == drained.chain().end


def _retained(drained: Drained) -> int:
    query: LiteralString = (
        "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint"
        " FROM pg_replication_slots WHERE slot_name = %s"
    )
    kept: int = drained.database.value(query, [drained.slot])
    return kept
