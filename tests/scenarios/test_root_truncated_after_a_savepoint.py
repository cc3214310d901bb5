"""A partitioned table is truncated after a SAVEPOINT: the table is held, as if somebody had truncated its partitions.

The catalog has the number of the subtransaction, which the stream has not: the TRUNCATE that it brings proves nothing.
"""

from __future__ import annotations

import pytest

from lakeproof.catalog.differences import Difference
from tests.support.ingest.fix_drain import Drained

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize(
    ("savepoint", "difference"),
    [(False, Difference.ROOT_TRUNCATED), (True, Difference.PARTITION_FILE)],
    ids=["plain", "savepoint"],
)
def test_the_truncate_is_known_by_its_transaction(drained: Drained, savepoint: bool, difference: Difference) -> None:
    """Without a savepoint nothing is held; with one the table is copied again, which costs time and no row."""
    database = drained.database
    database.execute(
        "ALTER PUBLICATION shop SET (publish_via_partition_root)",
        "CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high PARTITION OF t FOR VALUES FROM (10) TO (20)",
    )
    drained.begin()
    database.execute("INSERT INTO t SELECT i, 'v' FROM generate_series(1, 19) i")
    with database.connect(autocommit=False) as connection:
        if savepoint:
            connection.execute("SAVEPOINT s")
        connection.execute("TRUNCATE t")
    database.execute("INSERT INTO t VALUES (1, 'new')")
    drained.drain()
    (change,) = (c for m in drained.chain().manifests(1) if m.catalog is not None for c in m.catalog.changes)
    assert change.differences == (difference,)
