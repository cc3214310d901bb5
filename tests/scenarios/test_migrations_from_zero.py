"""An application's migrations run from zero: tables without a row are altered in every way, and next to none is held.

Cycles are planned as they are run, and added up by plain Python (`tests/support/lake/modelled_lake.py`): no JVM is needed.
`LAKEPROOF_SEED` repeats a run.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from lakeproof.names import TableName
from tests.support.ingest.fix_drain import Drained
from tests.support.lake.modelled_lake import ModelledLake
from tests.support.servers.fix_postgres import Database
from tests.support.workloads.migration_run import Migrations

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
_HELD_MAX = 0.05


@pytest.mark.parametrize("tables", [40, pytest.param(150, marks=pytest.mark.full)])
def test_a_run_of_migrations_from_zero_leaves_next_to_no_table_held(
    database: Database, tmp_path: Path, tables: int
) -> None:
    """The catalog is read, and the lake compacted, now and then between two migrations."""
    chance = random.Random(SEED)
    database.execute("CREATE PUBLICATION shop FOR ALL TABLES")
    drained = Drained(database, tmp_path / "lake")
    drained.begin()
    lake, migrations = ModelledLake(drained), Migrations(chance, tables)
    with database.connect(autocommit=False) as conn:
        for statements in migrations.run():
            for statement in statements:
                conn.execute(statement.encode())
            conn.commit()
            if chance.random() < 0.05:
                drained.drain()
            if chance.random() < 0.05:
                lake.compact()
        for _ in range(2):
            conn.execute("INSERT INTO django_migrations (name) VALUES ('last')")
            conn.commit()
            drained.drain()
            lake.compact()
    assert lake.cut is not None
    existing = {TableName("public", name) for name in migrations.tables} | {TableName("public", "django_migrations")}
    held = {str(t): h.reason for t, h in lake.cut.held.items() if t in existing}
    waiting = {str(t) for t in existing - lake.cut.tables.keys() - lake.cut.held.keys()}
    message = f"LAKEPROOF_SEED={SEED}: of {len(existing)} tables {held} are held and {waiting} wait"
    assert not lake.difference(), message
    assert len(held) + len(waiting) < _HELD_MAX * len(existing), message
