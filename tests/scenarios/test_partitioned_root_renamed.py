"""The root of a partitioned table is renamed while a drain runs: no row that comes after it is passed over.

A walsender announces the root once for each partition that has rows, and not again when the root alone gets another name. So
rows go on coming under the name that the session first had. What a cycle does with such rows is in
`tests/edges/planning/test_lake_plan.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.lake.records.store import newest_cut
from lakeproof.landing.catalog_history import newest_catalog
from lakeproof.lsn import Lsn
from tests.support.ingest.fix_drain import SOURCE, Drained, wait_until
from tests.support.lake.compare import current_lsn, lake_rows, source_rows, table_columns
from tests.support.lake.proof_steps import into_the_lake, table
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres
_BEFORE, _NOW = table("r"), table("renamed")
_LIMITS: dict[str, Any] = {"progress_interval_s": 0.2, "flush_interval_s": 0.1, "catalog_interval_s": 0.3}


@pytest.fixture
def drained(database: Database, tmp_path: Path) -> Drained:
    """A table of two partitions, copied."""
    database.execute(
        "CREATE TABLE r (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE r_a PARTITION OF r FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE r_b PARTITION OF r FOR VALUES FROM (100) TO (200)",
        "CREATE PUBLICATION shop FOR ALL TABLES WITH (publish_via_partition_root)",
        "INSERT INTO r SELECT i, 'v' FROM generate_series(1, 150) i",
    )
    drained = Drained(database, tmp_path / "lake")
    bootstrap(drained.config(**_LIMITS), SOURCE)
    return drained


def _landed(database: Database, drained: Drained, *statements: str) -> None:
    """Run statements, and wait until their rows have landed."""
    database.execute(*statements)
    end = Lsn.parse(current_lsn(database.dsn))
    wait_until(lambda: drained.chain().end >= end)


def _is_equal(database: Database, drained: Drained) -> bool:
    cut, columns = newest_cut(drained.source_lake), table_columns(database.dsn, _NOW)
    assert cut is not None
    lake, version = drained.source_lake, cut.tables[_NOW].current_version
    rows = lake_rows(lake.url(lake.paths.current(_NOW)), version, *columns)
    return rows == source_rows(database.dsn, (_NOW,))[_NOW]


def test_a_stream_is_opened_again_once_the_catalog_has_the_new_name(database: Database, drained: Drained) -> None:
    """Then rows have the new name, and one copy is followed."""
    config = drained.config(**_LIMITS)
    with drained.running("stopped", **_LIMITS):
        _landed(database, drained, "UPDATE r SET v = 'before' WHERE id = 5", "ALTER TABLE r RENAME TO renamed")

        def has_new_name() -> bool:
            _landed(database, drained, "UPDATE renamed SET v = v || '.' WHERE id = 6")
            chain = drained.chain()
            names = [e.version.table for m in chain.between(chain.head.end_lsn, chain.end) for e in m.schemas]
            return _NOW in names

        wait_until(has_new_name)
        catalog = newest_catalog(drained.chain())
        assert catalog is not None
        assert _NOW in {each.table for each in catalog.tables.values()}
        bootstrap(config, SOURCE, [_NOW])
        _landed(database, drained, "UPDATE renamed SET v = 'later' WHERE id IN (7, 107)")
        into_the_lake(config)
    cut = newest_cut(drained.source_lake)
    assert cut is not None
    assert cut.held.keys() == {_BEFORE}
    assert _is_equal(database, drained)
