"""Two publications have one table: the server decides for both together by which name a row is sent, and by which filter.

A root that one of them publishes with `publish_via_partition_root` stands for its partitions in the other one, too. A filter
in one is none for the operations that the other one publishes without.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typing_extensions import LiteralString

from lakeproof.config.load import load
from lakeproof.lake.read.arrow.open import read_lake
from tests.support.servers.fix_postgres import Database
from tests.support.servers.typed_commands import place_of

pytestmark = pytest.mark.postgres
PLAIN: list[LiteralString] = ["CREATE TABLE t (id int PRIMARY KEY, v text)"]
TREE: list[LiteralString] = [
    "CREATE TABLE r (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE t PARTITION OF r FOR VALUES FROM (0) TO (1000)",
]
ROWS: LiteralString = "INSERT INTO t SELECT n, 'v' || n FROM generate_series(1, 5) n"
ROOTS = "publish_via_partition_root = true"
ALL = "publish = 'insert, update, delete, truncate'"
Publications = tuple[str, str | None]
# The tables, what the two publications have at first (the second: none yet), what is altered (of the second: @2), and the
# words of the error that the next copy of `t`, or of the root, gives; none if all stays equal to the source.
CASES: dict[str, tuple[list[LiteralString], Publications, str, tuple[str, ...]]] = {
    "partitions by name, then a root": (
        TREE, ("TABLE r", None), f"CREATE PUBLICATION @2 FOR TABLE r WITH (publish = 'insert', {ROOTS})",
        ("public.t", "one publication sends its rows as those of public.r"),
    ),
    "a root, then its partition by name": (
        TREE, (f"TABLE r WITH ({ROOTS})", None), "CREATE PUBLICATION @2 FOR TABLE t WITH (publish = 'insert')",
        ("public.r", "another one its partition public.t by name"),
    ),
    "two roots": (
        TREE, (f"TABLE r WITH ({ROOTS})", f"TABLE r WITH (publish = 'insert', {ROOTS})"),
        f"ALTER PUBLICATION @2 SET ({ALL})", (),
    ),
    "a filter, then none for inserts": (
        PLAIN, ("TABLE t WHERE (id < 4)", f"TABLE t WITH ({ALL})"), "ALTER PUBLICATION @2 SET (publish = 'insert')",
        ("public.t", "its publications filter the rows of one operation in another way"),
    ),
    "a filter for inserts, then none": (
        PLAIN, ("TABLE t", "TABLE t WHERE (id < 4) WITH (publish = 'insert')"), "ALTER PUBLICATION @2 SET TABLE t", ()
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=[pytest.mark.since(15)] * ("filter" in name)) for name in CASES]
)
def test_what_the_two_have_together_counts(
    case: str, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table is equal to the source in the end, or an error names both publications' difference, before it is copied."""
    tables, (first, second), altered, error = CASES[case]
    place = place_of(database, tmp_path, monkeypatch, capsys)
    place.configure("tables: ['public.*']")
    names = database.name, f"{database.name}_inserts"
    database.execute(*tables, ROWS, f"CREATE PUBLICATION {names[0]} FOR {first}")
    if second is not None:
        database.execute(f"CREATE PUBLICATION {names[1]} FOR {second}")
    assert [place.run(*line)[0] for line in (("bootstrap",), ("compact",))] == [0, 0]
    database.execute(altered.replace("@2", names[1]))
    place.catch_up()
    database.execute("UPDATE t SET v = 'u'", "INSERT INTO t VALUES (6, 'six')")
    place.catch_up()
    if error:
        table, reason = error
        findings = place.document("check")[1]["sources"]["shop"]["findings"]
        assert [f for f in findings if f["thing"] == f"table {table}" and reason in f["reason"]], findings
        assert place.run("bootstrap", "shop", "--tables", table)[0] == 2
    status = place.document("status")[1]["sources"]["shop"]
    lake, compared = read_lake(load(place.file)), 0
    live = {str(table) for table in lake.cut("shop").tables} - {*status["held"], *status["shortfall"]["absent"]}
    for name in live & {"public.t", "public.r"}:
        rows = lake.table("shop", name).arrow().to_pylist()
        table = name.removeprefix("public.")
        assert sorted(tuple(row.values()) for row in rows) == database.rows(f"TABLE {table} ORDER BY id"), table
        compared += 1
    assert error or compared
