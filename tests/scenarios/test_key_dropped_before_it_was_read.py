"""A primary key is dropped before the stream was read, and the table is analyzed: its earlier changes come without a key.

Whether a table has an index is no fact of a transaction's: ANALYZE and VACUUM take it back in place, and the walsender then
sends what came before the DROP as that of a table without a key. Nobody can say which row such an update means.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typing_extensions import LiteralString

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.lake.records.held import HeldCause, WayOut
from lakeproof.lake.records.store import newest_cut
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.proof_steps import WITHOUT, into_the_lake, table, wrong_in
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres
T = table("t")


@pytest.mark.parametrize("afterwards", ["ANALYZE t", "VACUUM t"])
@pytest.mark.parametrize(
    "change", ["UPDATE t SET v = 9 WHERE id = 1", "UPDATE t SET id = 7 WHERE id = 1", "DELETE FROM t WHERE id = 1"]
)
def test_a_change_without_its_key_holds_the_table(
    database: Database, tmp_path: Path, change: LiteralString, afterwards: LiteralString
) -> None:
    """Seen once: the updated row was in the lake twice. Other tables go on, and a copy brings the table back."""
    database.execute("CREATE TABLE other (id serial PRIMARY KEY)", "CREATE PUBLICATION pub FOR ALL TABLES")
    config = Config(path=tmp_path / "x.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source()})
    bootstrap(config, "shop")
    into_the_lake(config)
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        change,
        "ALTER TABLE t DROP CONSTRAINT t_pkey",
        afterwards,
    )
    # The second drain is past what the first one has read of the catalog.
    for _ in range(2):
        database.execute("INSERT INTO other DEFAULT VALUES")
        into_the_lake(config)
    cut = newest_cut(SourceLake.open(config.location, "shop"))
    assert cut is not None
    assert {t: (h.cause, h.way_out) for t, h in cut.held.items()} == {T: (HeldCause.DATA_REFUSED, WayOut.SNAPSHOT)}
    assert "without the key of its row" in cut.held[T].reason
    assert cut.tables[table("other")].at_lsn == cut.position
    bootstrap(config, "shop", [T])
    database.execute("INSERT INTO t VALUES (3, 3)")
    into_the_lake(config)
    assert wrong_in(prove(config, "shop", None, WITHOUT)) == {}
    rows = [tuple(row.values()) for row in read_lake(config).table("shop", T).arrow().to_pylist()]
    assert sorted(rows) == sorted(database.rows("SELECT id, v FROM t"))
