"""A transaction alters a table again after its last row: the stream has the earlier schema, the catalog the later one."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.lake.records.store import newest_cut
from lakeproof.proof.run import ProofRequest
from lakeproof.storage.source_lake import SourceLake
from tests.support.ingest.fix_drain import wait_until
from tests.support.lake.proof_steps import WITHOUT, into_the_lake, table
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize(
    ("later", "columns"),
    [
        ("ALTER TABLE t ADD y int", ("id", "v", "x", "y")),
        ("ALTER TABLE t DROP v", ("id", "x")),
        ("ALTER TABLE t RENAME v TO w", ("id", "w", "x")),
    ],
    ids=["added", "dropped", "renamed"],
)
def test_what_came_after_the_last_row_comes_with_the_catalog(
    database: Database, tmp_path: Path, later: str, columns: tuple[str, ...]
) -> None:
    """No row brings the later schema, so it comes with a reading that agrees with the record once the row has landed."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE TABLE root (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE leaf PARTITION OF root FOR VALUES FROM (0) TO (9)",
        "CREATE PUBLICATION pub FOR ALL TABLES WITH (publish_via_partition_root)",
    )
    config = Config(path=tmp_path / "lakeproof.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source()})
    bootstrap(config, "shop")
    into_the_lake(config)
    with database.connect() as connection, connection.transaction():
        connection.execute("ALTER TABLE t ADD x int")
        connection.execute("INSERT INTO t VALUES (1, 'v', 1)")
        connection.execute(later.encode())
        # A reading of the catalog is complete only when the stream has passed this.
        connection.execute("TRUNCATE root")

    def has_come() -> bool:
        # What the server itself has logged before the reading may not have been flushed.
        into_the_lake(config)
        database.flush_wal()
        cut = newest_cut(SourceLake.open(config.location, "shop"))
        return cut is not None and tuple(c.name for c in cut.tables[table("t")].version.columns) == columns

    wait_until(has_come)
    for request in (ProofRequest(changed=True), None):
        assert prove(config, "shop", None, WITHOUT, request=request).equal
