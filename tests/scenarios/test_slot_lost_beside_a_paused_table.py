"""The slot is lost while a table is paused: `recover` takes the rest, and the paused table comes back by `resume`."""

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
    """A lake of two tables, of which one is paused, without its slot."""
    result = place_of(database, tmp_path, monkeypatch, capsys)
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, n int)", "INSERT INTO orders VALUES (1, 1)")
    result.configure("tables: [public.items, public.orders]")
    assert [result.run(command)[0] for command in ("apply", "bootstrap", "compact")] == [0, 0, 0]
    assert result.run("pause", "shop", "--tables", "public.orders")[0] == 0
    result.catch_up()
    database.execute(
        "INSERT INTO orders VALUES (2, 2)",
        "UPDATE items SET name = 'gap' WHERE id = 1",
        f"SELECT pg_drop_replication_slot('{database.name}')",
    )
    return result


def test_recover_takes_what_is_published(place: Place) -> None:
    """The paused table stays as it was, and is equal after it was resumed."""
    assert place.run("recover", "shop")[0] == 0
    place.database.execute("UPDATE items SET name = 'later' WHERE id = 2", "INSERT INTO orders VALUES (3, 3)")
    place.catch_up()
    status, document = place.document("prove", "shop", "--tables", "public.items")
    assert (status, document["tables"]["public.items"]["status"]) == (0, "equal")
    assert "paused     public.orders" in place.run("status")[1]
    assert place.run("resume", "shop", "--tables", "public.orders")[0] == 0
    place.database.execute("INSERT INTO orders VALUES (4, 4)")
    assert place.catch_up() == [0] * 4
    status, document = place.document("prove", "shop")
    assert {name: proof["status"] for name, proof in document["tables"].items()} == {
        "public.items": "equal",
        "public.orders": "equal",
    }
    assert status == 0
