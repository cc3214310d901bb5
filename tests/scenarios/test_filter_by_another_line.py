"""A publication gets, or loses, another line that has a table: it ends the filter of the table's own line, or brings one.

A schema's line has no filter, and the server applies none to a table that its schema publishes; a partition's own line
has one that the root's line has not. The catalog's line with the filter stands as it stood, all the while.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typing_extensions import LiteralString

from lakeproof.config.load import load
from lakeproof.lake.read.arrow.open import read_lake
from tests.support.servers.fix_postgres import Database
from tests.support.servers.typed_commands import place_of

pytestmark = [pytest.mark.postgres, pytest.mark.since(15)]
PLAIN: list[LiteralString] = ["CREATE TABLE t (id int PRIMARY KEY, v text)"]
LEAF: list[LiteralString] = [
    "CREATE TABLE r (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE t PARTITION OF r FOR VALUES FROM (0) TO (1000)",
]
# The table, what the publication has of it at first, what is altered, and if it needs a copy.
CASES: dict[str, tuple[list[LiteralString], str, str, bool]] = {
    "schema added": (PLAIN, "TABLE t WHERE (id < 4)", "ADD TABLES IN SCHEMA public", True),
    "schema dropped": (PLAIN, "TABLE t WHERE (id < 4), TABLES IN SCHEMA public", "DROP TABLES IN SCHEMA public", True),
    "schema added to a table without a filter": (PLAIN, "TABLE t", "ADD TABLES IN SCHEMA public", False),
    "filter of a partition added": (LEAF, "TABLE r", "ADD TABLE t WHERE (id < 4)", True),
    "filter of a partition dropped": (LEAF, "TABLE r, t WHERE (id < 4)", "DROP TABLE t", True),
    "columns of a partition added": (LEAF, "TABLE r", "ADD TABLE t (id)", True),
    "line of a partition added": (LEAF, "TABLE r", "ADD TABLE t", False),
}


@pytest.mark.parametrize("case", CASES)
def test_the_table_is_held_or_equal(
    case: str, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows that the publication has from now on, or no longer has, were not sent."""
    table, published, altered, needs_copy = CASES[case]
    place = place_of(database, tmp_path, monkeypatch, capsys)
    place.configure("tables: [public.t]")
    database.execute(
        *table,
        "INSERT INTO t SELECT n, 'v' || n FROM generate_series(1, 5) n",
        f"CREATE PUBLICATION {database.name} FOR {published}",
    )
    assert [place.run(*line)[0] for line in (("bootstrap",), ("compact",))] == [0, 0]
    database.execute(f"ALTER PUBLICATION {database.name} {altered}", "UPDATE t SET v = 'u'")
    place.catch_up()
    held = place.document("status")[1]["sources"]["shop"]["held"]
    assert ("public.t" in held) is needs_copy, held
    if not needs_copy:
        rows = read_lake(load(place.file)).table("shop", "public.t").arrow().to_pylist()
        assert sorted(tuple(row.values()) for row in rows) == database.rows("TABLE t ORDER BY id")
