"""Queries of many shapes over three tables, for the property test of views: each with the strategies it may be computed by.

Running them does not belong here (`tests/properties/views/test_view_shapes.py`).

    items  (id, grp, val, note)     parts (pid, item, qty, kind)     kinds (kind, label)
"""

from __future__ import annotations

LINEAR, ADDED, GROUPS, KEYS, FULL = "linear", "added", "groups", "keys", "full"
# What a sum that becomes 0 leaves open is computed anew.
OPEN = "added or groups"

# By name: the strategy if `items` alone has changed, and the SQL.
SHAPES: dict[str, tuple[str, str]] = {
    "filter": (LINEAR, "SELECT id, val FROM items WHERE val > 3"),
    "projection": (LINEAR, "SELECT grp, val * 2 AS v FROM items"),
    "case": (LINEAR, "SELECT CASE WHEN val > 5 THEN 'high' ELSE 'low' END AS c FROM items"),
    "join": (LINEAR, "SELECT i.id, p.qty FROM items i JOIN parts p ON p.item = i.id"),
    "comma_join": (LINEAR, "SELECT i.grp, p.qty FROM items i, parts p WHERE p.item = i.id AND p.qty > 1"),
    "three_joins": (
        LINEAR,
        "SELECT i.note, p.qty, k.label FROM items i JOIN parts p ON p.item = i.id JOIN kinds k ON k.kind = p.kind",
    ),
    "unequal_join": (LINEAR, "SELECT i.id, k.label FROM items i JOIN kinds k ON i.val > k.kind"),
    "cross_join": (LINEAR, "SELECT i.id, k.label FROM items i CROSS JOIN kinds k WHERE i.grp = 1"),
    "union_all": (LINEAR, "SELECT id AS n, val AS v FROM items UNION ALL SELECT pid, qty FROM parts"),
    "union_of_joins": (
        LINEAR,
        "SELECT i.id, k.kind FROM items i JOIN kinds k ON k.kind = i.grp UNION ALL SELECT pid, qty FROM parts",
    ),
    "with": (
        LINEAR,
        "WITH w AS (SELECT id FROM items WHERE val < 8) SELECT w.id, p.qty FROM w JOIN parts p ON p.item = w.id",
    ),
    "nested": (LINEAR, "SELECT v + 1 AS v FROM (SELECT val AS v FROM items WHERE grp <> 2) WHERE v > 1"),
    "constant": (LINEAR, "SELECT 1 AS one FROM items"),
    "unused_side": (LINEAR, "SELECT k.label FROM items i CROSS JOIN kinds k"),
    "explode": (LINEAR, "SELECT id, w FROM items LATERAL VIEW explode(split(note, 'a')) AS w"),
    "sums": (ADDED, "SELECT grp, sum(val) AS s, count(val) AS c, count(*) AS n FROM items GROUP BY grp"),
    "sums_alone": (OPEN, "SELECT grp, sum(val) AS s FROM items GROUP BY grp"),
    "averages": (
        ADDED,
        "SELECT sum(val) AS s, note, avg(val) AS a, count(val) AS n, count(*) AS r FROM items GROUP BY note",
    ),
    "decimals": (
        ADDED,
        """SELECT g, sum(v) AS s, avg(v) AS a, count(v) AS n, count(1) AS r
        FROM (SELECT grp AS g, val * 1.25 AS v FROM items) GROUP BY g""",
    ),
    "counts_with_conditions": (
        ADDED,
        "SELECT grp, count(*) AS r, count(*) FILTER (WHERE val > 3) AS high, count(note) AS notes FROM items GROUP BY grp",
    ),
    "sums_of_a_union": (
        OPEN,
        "SELECT k, sum(v) AS s FROM (SELECT grp AS k, val AS v FROM items UNION ALL SELECT kind, qty FROM parts) GROUP BY k",
    ),
    "averages_alone": (KEYS, "SELECT grp, avg(val) AS a, count(*) AS n FROM items GROUP BY grp"),
    "sum_of_floats": (KEYS, "SELECT grp, sum(CAST(val AS double) / 4) AS s FROM items GROUP BY grp"),
    "extremes": (KEYS, "SELECT grp, min(val) AS a, max(note) AS b, avg(val) AS c FROM items GROUP BY grp"),
    "count_distinct": (KEYS, "SELECT grp, count(DISTINCT val) AS n FROM items GROUP BY grp"),
    "having": (KEYS, "SELECT grp, count(*) AS n FROM items GROUP BY grp HAVING count(*) > 2"),
    "two_keys": (ADDED, "SELECT grp, val, count(*) AS n FROM items GROUP BY grp, val"),
    "array_of_a_group": (KEYS, "SELECT grp, array_sort(collect_list(val)) AS a FROM items GROUP BY grp"),
    "distinct": (KEYS, "SELECT DISTINCT grp, note FROM items"),
    "union": (KEYS, "SELECT id AS n FROM items UNION SELECT pid FROM parts"),
    "except": (KEYS, "SELECT id FROM items EXCEPT SELECT item FROM parts"),
    "intersect": (KEYS, "SELECT id FROM items INTERSECT SELECT item FROM parts"),
    "except_all": (KEYS, "SELECT grp FROM items EXCEPT ALL SELECT kind FROM parts"),
    "left_join": (KEYS, "SELECT i.id, p.qty FROM items i LEFT JOIN parts p ON p.item = i.id"),
    "right_join": (KEYS, "SELECT p.item, i.note FROM items i RIGHT JOIN parts p ON p.item = i.id"),
    "left_join_filtered": (KEYS, "SELECT i.id, p.qty FROM items i LEFT JOIN parts p ON p.item = i.id AND p.qty > 2"),
    "semi_join": (KEYS, "SELECT i.id, i.val FROM items i LEFT SEMI JOIN parts p ON p.item = i.id"),
    "anti_join": (KEYS, "SELECT i.id, i.val FROM items i LEFT ANTI JOIN parts p ON p.item = i.id"),
    "exists": (
        KEYS,
        "SELECT id, val FROM items i WHERE EXISTS (SELECT 1 FROM parts p WHERE p.item = i.id AND p.qty > 1)",
    ),
    "not_exists": (KEYS, "SELECT id FROM items i WHERE NOT EXISTS (SELECT * FROM parts p WHERE p.item = i.id)"),
    "in": (KEYS, "SELECT id, note FROM items WHERE id IN (SELECT item FROM parts WHERE qty > 1)"),
    "in_a_table": (
        KEYS,
        "SELECT id, grp FROM items WHERE (grp, CASE WHEN val > 2 THEN 'x' ELSE 'y' END) IN (TABLE kinds)",
    ),
    "not_in": (KEYS, "SELECT id FROM items WHERE grp NOT IN (SELECT kind FROM kinds)"),
    "rank": (KEYS, "SELECT grp, id, rank() OVER (PARTITION BY grp ORDER BY val NULLS LAST, id) AS r FROM items"),
    "running_sum": (KEYS, "SELECT id, grp, sum(val) OVER (PARTITION BY grp ORDER BY id) AS s FROM items"),
    "newest_of_a_group": (
        KEYS,
        "SELECT grp, id FROM(SELECT *, rank() OVER (PARTITION BY grp ORDER BY val NULLS LAST, id) r FROM items) WHERE r = 1",
    ),
    "join_and_group": (
        OPEN,
        "SELECT i.grp, sum(p.qty) AS q, count(*) AS n FROM items i JOIN parts p ON p.item = i.id GROUP BY i.grp",
    ),
    "group_by_the_join_key": (
        KEYS,
        "SELECT i.id, count(p.pid) AS n FROM items i LEFT JOIN parts p ON p.item = i.id GROUP BY i.id",
    ),
    "group_of_a_group": (
        FULL,
        "SELECT n, count(*) AS m FROM (SELECT grp, count(*) AS n FROM items GROUP BY grp) GROUP BY n",
    ),
    "self_join": (KEYS, "SELECT a.id, b.val FROM items a JOIN items b ON a.id = b.id"),
    "self_join_on_others": (FULL, "SELECT a.id, b.note FROM items a JOIN items b ON a.grp = b.val"),
    "total": (ADDED, "SELECT count(*) AS n, sum(val) AS s, count(val) AS c FROM items"),
    "total_of_distinct": (FULL, "SELECT count(DISTINCT val) AS n FROM items"),
    "count_alone": (ADDED, "SELECT count(*) AS n FROM items"),
    "expression_key": (ADDED, "SELECT val % 3 AS m, count(*) AS n FROM items GROUP BY val % 3"),
    "full_join": (FULL, "SELECT i.id, p.pid FROM items i FULL JOIN parts p ON p.item = i.id"),
    "limit": (FULL, "SELECT id FROM items ORDER BY id LIMIT 5"),
    "scalar_subquery": (FULL, "SELECT id, (SELECT max(qty) FROM parts) AS q FROM items"),
    "compared_with_a_total": (FULL, "SELECT id FROM items WHERE val > (SELECT avg(val) FROM items)"),
    "expression_key_and_most": (GROUPS, "SELECT val % 3 AS m, max(val) AS n FROM items GROUP BY val % 3"),
    "most_of_a_join": (
        GROUPS,
        "SELECT p.qty, max(i.val) AS m FROM items i JOIN parts p ON p.item = i.id GROUP BY p.qty",
    ),
    "average_of_longs": (
        GROUPS,
        """SELECT val % 3 AS m, avg(CAST(val AS bigint)) AS a, sum(CAST(val AS bigint)) AS s, count(val) AS n, count(*) AS r
        FROM items GROUP BY val % 3""",
    ),
    "exists_alone": (FULL, "SELECT label FROM kinds WHERE EXISTS (SELECT 1 FROM items WHERE val = 9)"),
    "subquery_in_a_join": (
        FULL,
        "SELECT i.id, p.qty FROM items i JOIN parts p ON p.item = i.id AND i.val > (SELECT min(kind) FROM kinds)",
    ),
    "in_of_a_join": (
        FULL,
        "SELECT i.id, p.qty FROM items i JOIN parts p ON p.item = i.id AND p.kind IN (SELECT kind FROM kinds)",
    ),
    "subquery_in_explode": (
        FULL,
        "SELECT id, w FROM items LATERAL VIEW explode(array(grp, (SELECT count(*) FROM kinds))) AS w",
    ),
    "order_by_a_subquery": (
        FULL,
        "SELECT id FROM items ORDER BY id % (2 + (SELECT count(*) FROM kinds)), id LIMIT 5",
    ),
    "rollup": (FULL, "SELECT grp, note, count(*) AS n FROM items GROUP BY ROLLUP (grp, note)"),
    "window_of_all": (FULL, "SELECT id, rank() OVER (ORDER BY val NULLS LAST, id) AS r FROM items"),
}

# Those whose SQL PostgreSQL does not answer in the same way, and why.
_SYNTAX, _QUOTIENT = "PostgreSQL writes it in another way", "PostgreSQL rounds a quotient to another scale"
ONLY_SPARK = {
    "explode": _SYNTAX,
    "subquery_in_explode": _SYNTAX,
    "array_of_a_group": _SYNTAX,
    "semi_join": _SYNTAX,
    "anti_join": _SYNTAX,
    "sum_of_floats": _SYNTAX,
    "extremes": _QUOTIENT,
    "averages": _QUOTIENT,
    "averages_alone": _QUOTIENT,
    "average_of_longs": _QUOTIENT,
    "decimals": _QUOTIENT,
}
