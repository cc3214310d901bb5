"""Partitions that were published by their names are published with their root, and by their names again.

Nothing was attached: the configuration alone has changed, as an operator changes it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.servers.fix_postgres import Database
from tests.support.servers.typed_commands import Place, place_of

pytestmark = pytest.mark.postgres


@pytest.fixture
def place(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Place:
    """A lake of a root's two partitions."""
    result = place_of(database, tmp_path, monkeypatch, capsys)
    database.execute(
        "CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (1000)",
        "INSERT INTO p SELECT g, 'x' FROM generate_series(50, 150) g",
    )
    result.configure("tables: [public.items, public.p1, public.p2]")
    assert [result.run(command)[0] for command in ("apply", "bootstrap", "compact")] == [0, 0, 0]
    return result


def _equal(place: Place, *tables: str) -> None:
    place.database.execute("UPDATE p SET v = v || '.' WHERE id % 3 = 0")
    assert place.catch_up() == [0] * 4
    status, document = place.document("prove", "shop")
    proofs = {name: proof["status"] for name, proof in document["tables"].items()}
    assert {table: proofs[table] for table in tables} == dict.fromkeys(tables, "equal")
    assert status == 0


def test_the_partitions_are_left_and_come_back(place: Place) -> None:
    """`status` waits for none of them; published by their names again, a copy that nobody names is enough."""
    place.configure("tables: [public.items, public.p]")
    assert place.run("apply")[0] == 0
    assert place.run("bootstrap", "shop", "--tables", "public.p")[0] == 0
    _equal(place, "public.p")
    status, text = place.run("status")
    assert ("left       public.p1" in text, "left       public.p2" in text) == (True, True)
    assert status == 0
    place.configure("tables: [public.items, public.p1, public.p2]")
    assert place.run("apply")[0] == 0
    place.catch_up()
    assert place.run("bootstrap", "shop", "--held")[0] == 0
    _equal(place, "public.p1", "public.p2")
    assert "left       public.p:" in place.run("status")[1]
