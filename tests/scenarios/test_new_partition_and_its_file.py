"""A partition below a published root is made and then given another file, or it is attached with values of its own.

The stream brings a partition's rows as the root's, and never that it was truncated, or that it was unlogged for a while.
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
NEW: LiteralString = "CREATE TABLE p2 PARTITION OF root FOR VALUES FROM (100) TO (200)"
FILL: LiteralString = "INSERT INTO root VALUES (105, 'p2')"
MORE: LiteralString = "INSERT INTO root VALUES (106, 'b')"
# Between two readings, each; then if a copy is needed.
CASES: dict[str, tuple[list[list[LiteralString]], bool]] = {
    "made and filled": ([[NEW, FILL], [MORE]], False),
    "made, filled and truncated": ([[NEW, FILL, "TRUNCATE p2", MORE]], True),
    "made, filled and truncated with its root": ([[NEW, FILL, "TRUNCATE root", MORE]], False),
    "made, filled, and truncated after its root": ([[NEW, FILL, "TRUNCATE root", FILL, "TRUNCATE p2", MORE]], True),
    "made unlogged, filled, and logged later": (
        [[NEW.replace("TABLE", "UNLOGGED TABLE"), FILL], ["ALTER TABLE p2 SET LOGGED", MORE]],
        True,
    ),
    "unlogged for a while": (
        [[NEW, FILL], ["ALTER TABLE p2 SET UNLOGGED", MORE, "ALTER TABLE p2 SET LOGGED"]],
        True,
    ),
}


@pytest.fixture
def place(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Place:
    """A root with one partition, published by its name."""
    result = place_of(database, tmp_path, monkeypatch, capsys)
    result.configure("tables: [public.root]")
    database.execute(
        "CREATE TABLE root (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        # An own value for rows that it does not have.
        "CREATE TABLE p3 (id int NOT NULL, v text)",
        "ALTER TABLE p3 ADD x int DEFAULT 1",
        "CREATE TABLE p1 PARTITION OF root FOR VALUES FROM (0) TO (100)",
        "INSERT INTO root VALUES (1, 'x'), (2, 'y')",
        f"CREATE PUBLICATION {database.name} FOR TABLE root WITH (publish_via_partition_root = true)",
    )
    return result


def _is_held(place: Place) -> bool:
    """Compare the lake with the source, unless it says itself that the table is held."""
    _, document = place.document("status")
    if "public.root" in document["sources"]["shop"]["held"]:
        return True
    table = read_lake(load(place.file)).table("shop", "public.root").arrow()
    assert sorted(tuple(row.values()) for row in table.to_pylist()) == place.database.rows("TABLE root ORDER BY id")
    return False


@pytest.mark.parametrize("case", CASES)
def test_the_lake_has_the_rows_or_the_table_is_held(place: Place, case: str) -> None:
    """Never silently neither."""
    assert [place.run(*line)[0] for line in (("bootstrap",), ("compact",))] == [0, 0]
    steps, needs_copy = CASES[case]
    for statements in steps:
        place.database.execute(*statements)
        place.catch_up()
    assert _is_held(place) is needs_copy
    if not needs_copy:
        assert [place.run(*line)[0] for line in (("prove", "shop"), ("status",))] == [0, 0]


@pytest.mark.parametrize("default", ["", " DEFAULT 9"])
def test_an_attached_partition_s_value_is_not_that_of_older_rows(place: Place, default: str) -> None:
    """The root's rows read its own default, or NULL; only a copy says so, since the catalog has both values."""
    assert [place.run(*line)[0] for line in (("bootstrap",), ("compact",))] == [0, 0]
    place.database.execute(
        f"ALTER TABLE root ADD x int{default}",
        "ALTER TABLE root ATTACH PARTITION p3 FOR VALUES FROM (200) TO (300)",
        "INSERT INTO root VALUES (3, 'z', 3), (205, 'p3', 4)",
    )
    place.catch_up()
    assert _is_held(place)
