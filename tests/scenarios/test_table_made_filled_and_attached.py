"""One transaction makes a table, fills it and attaches it as a partition: the rows were written while nobody published them.

It looks nearly like CREATE TABLE … PARTITION OF in the catalog if no column needs a TOAST table, as those of numbers do not.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typing_extensions import LiteralString

from lakeproof.config.load import load
from lakeproof.lake.read.arrow.open import read_lake
from tests.support.servers.fix_postgres import Database
from tests.support.servers.typed_commands import Place, place_of

pytestmark = pytest.mark.postgres
FILLED: dict[str, list[LiteralString]] = {
    "like its root": ["CREATE TABLE c (LIKE root INCLUDING ALL)", "INSERT INTO c VALUES (105, 5)"],
    "by itself": ["CREATE TABLE c (id int NOT NULL, n int)", "INSERT INTO c VALUES (105, 5)"],
    "from a query": ["CREATE TABLE c AS SELECT 105 AS id, 5 AS n", "ALTER TABLE c ALTER id SET NOT NULL"],
    "in a subtransaction": [
        "SAVEPOINT s",
        "CREATE TABLE c (LIKE root)",
        "INSERT INTO c VALUES (105, 5)",
        "RELEASE s",
    ],
}
ATTACH: LiteralString = "ALTER TABLE root ATTACH PARTITION c FOR VALUES FROM (100) TO (200)"


@pytest.fixture
def place(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Place:
    """A root of numbers with one partition, in the lake by the root's name or by the partition's."""
    result = place_of(database, tmp_path, monkeypatch, capsys)
    result.configure("tables: ['public.*']")
    return result


@pytest.mark.parametrize("statements", FILLED)
@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (id)"])
@pytest.mark.parametrize("via_root", [True, False], ids=["by the root", "by the partition"])
def test_its_rows_are_not_taken_for_sent(place: Place, statements: str, key: str, *, via_root: bool) -> None:
    """The root is held, or the new partition waits for a copy; one that is made as a partition is neither."""
    database, table = place.database, "root" if via_root else "c"
    sent = "insert, update, delete, truncate" if key else "insert"
    database.execute(
        f"CREATE TABLE root (id int, n int{key}) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF root FOR VALUES FROM (0) TO (100)",
        "INSERT INTO root VALUES (1, 1)",
        f"CREATE PUBLICATION {database.name} FOR TABLE root"
        f" WITH (publish = '{sent}', publish_via_partition_root = {via_root})",
    )
    assert [place.run(*line)[0] for line in (("bootstrap",), ("compact",))] == [0, 0]
    database.execute(
        "CREATE TABLE p2 PARTITION OF root FOR VALUES FROM (200) TO (300)", "INSERT INTO root VALUES (205, 5)"
    )
    place.catch_up()
    status = place.document("status")[1]["sources"]["shop"]
    assert (status["held"], status["shortfall"]["absent"]) == ({}, {})
    rows = read_lake(load(place.file)).table("shop", "public.root" if via_root else "public.p2").arrow()
    assert 205 in rows.column("id").to_pylist()

    with database.connect(autocommit=False) as conn:
        for statement in (*FILLED[statements], ATTACH):
            conn.execute(statement)
        conn.commit()
    database.execute("INSERT INTO root VALUES (106, 6)")
    place.catch_up()
    status = place.document("status")[1]["sources"]["shop"]
    assert f"public.{table}" in (status["held"] if via_root else status["shortfall"]["absent"]), status
