"""The origins of a view's columns: what its SQL says for certain, and nothing else."""

from __future__ import annotations

import pytest

from assets.support.view_lineage import ViewColumn, view_columns

_TABLES = {
    "o": {"id": "int", "total": "decimal(12,2)", "tags": "array<string>", "Buyer": "int"},
    "c": {"id": "int", "name": "string"},
}


def _origins(sql: str) -> dict[str, tuple[tuple[str, str], ...]]:
    return {column.name: column.origins for column in view_columns(sql, _TABLES)}


def test_a_copy_has_one_origin_and_its_type() -> None:
    """Only such a column's type is known without Spark; case is as the query or the table has it."""
    assert view_columns("SELECT o.ID AS Number, buyer FROM o", _TABLES) == [
        ViewColumn("Number", (("o", "id"),), "int"),
        ViewColumn("buyer", (("o", "Buyer"),), "int"),
    ]
    assert [column.name for column in view_columns("SELECT * FROM o", _TABLES)] == ["id", "total", "tags", "Buyer"]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT sum(total) + 1 AS t, count(*) AS n FROM o", {"t": (("o", "total"),), "n": ()}),
        (
            "SELECT c.name, o.total FROM o JOIN c ON c.id = o.Buyer",
            {"name": (("c", "name"),), "total": (("o", "total"),)},
        ),
        (
            "WITH a AS (SELECT id, total * 2 AS d FROM o) SELECT a.d FROM a UNION ALL SELECT id FROM c",
            {"d": (("c", "id"), ("o", "total"))},
        ),
        ("SELECT (SELECT max(name) FROM c WHERE c.id = o.id) AS m FROM o", {"m": (("c", "name"),)}),
        ("SELECT id, tag FROM o LATERAL VIEW explode(tags) t AS tag", {"id": (("o", "id"),), "tag": (("o", "tags"),)}),
        ("SELECT x.id FROM o AS x JOIN o AS y ON x.id = y.Buyer", {"id": (("o", "id"),)}),
        (
            "SELECT CASE WHEN total > 1 THEN id ELSE Buyer END AS z FROM o",
            {"z": (("o", "Buyer"), ("o", "id"), ("o", "total"))},
        ),
        ("SELECT 1 AS one FROM o", {"one": ()}),
    ],
)
def test_origins_are_the_columns_whose_values_go_in(sql: str, expected: dict[str, object]) -> None:
    """Whatever a filter or a join reads does not count."""
    assert _origins(sql) == expected


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT nope FROM o",
        "SELECT id FROM elsewhere",
        "SELECT _lp_ord FROM o",
        "SELECT id FROM o, c",
        "SELECT e.col FROM (SELECT explode(tags) FROM o) e",
        "SELECT * FROM range(3)",
        "SELECT id, id FROM o",
        "TABLE o",
        "SELECT FROM WHERE",
        "DROP TABLE o",
    ],
)
def test_a_query_that_is_not_resolved_has_no_known_column(sql: str) -> None:
    """An ambiguous name, a table that is not bound, a hidden column, or no query at all."""
    assert view_columns(sql, _TABLES) == []


def test_a_column_of_every_column_has_no_known_origin() -> None:
    """A star inside an expression is not resolved; its neighbours are."""
    assert _origins("SELECT id, to_json(struct(*)) AS j FROM o") == {"id": (("o", "id"),), "j": ()}
