"""A table whose columns are all generated, or that has none: the stream sends rows of no columns.

Of such a table PostgreSQL's view of publications has NULL for the columns, which is no list of all of them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.servers.fix_postgres import Database
from tests.support.servers.typed_commands import Place, place_of

pytestmark = pytest.mark.postgres
_MADE = (
    "CREATE TABLE z ()",
    "CREATE TABLE g (a int GENERATED ALWAYS AS (7) STORED)",
    "ALTER TABLE g REPLICA IDENTITY FULL",
    "INSERT INTO z DEFAULT VALUES",
    "INSERT INTO g DEFAULT VALUES",
)


@pytest.fixture
def place(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Place:
    """A source of one table, all of whose tables are published."""
    place = place_of(database, tmp_path, monkeypatch, capsys)
    database.execute(f"CREATE PUBLICATION {database.name} FOR ALL TABLES")
    place.configure()
    return place


def test_check_and_copy_refuse_it(place: Place) -> None:
    """The other tables are copied."""
    place.database.execute(*_MADE)
    for command in ("check", "bootstrap"):
        status, text = place.run(command)
        assert status == 1, text
        refused = "\n".join(line for line in text.splitlines() if ": it has no published column" in line)
        assert {"public.g", "public.z"} <= set(re.findall(r"public\.[a-z]+", refused))
    assert place.run("drain", "shop", "--once")[0] == 0
    place.run("compact")
    assert place.run("prove", "shop", "--tables", "public.items")[0] == 0


def test_made_in_the_stream_it_has_its_rows(place: Place) -> None:
    """They are counted, and a proof compares their number."""
    assert [place.run(command)[0] for command in ("bootstrap", "compact")] == [0, 0]
    place.database.execute(*_MADE)
    assert place.catch_up() == [0] * 4
    place.database.execute("INSERT INTO g DEFAULT VALUES", "INSERT INTO z DEFAULT VALUES")
    assert place.catch_up() == [0] * 4
    status, document = place.document("prove", "shop")
    tables = {name: (proof["status"], proof["lake_rows"]) for name, proof in document["tables"].items()}
    assert tables == {"public.items": ("equal", 10), "public.g": ("equal", 2), "public.z": ("equal", 2)}
    assert status == 0
