"""Queries of many shapes over three tables, for the property test of views: each with the strategies it may be computed by.

Running them does not belong here (`tests/properties/test_view_shapes.py`).

    items  (id, grp, val, note)     parts (pid, item, qty, kind)     kinds (kind, label)
"""

from __future__ import annotations

LINEAR, KEYS, FULL = "linear", "keys", "full"

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
    "explode": (LINEAR, "SELECT id, w FROM items LATERAL VIEW explode(split(note, 'a')) AS w"),
    "sums": (KEYS, "SELECT grp, sum(val) AS s, count(*) AS n FROM items GROUP BY grp"),
    "sum_of_floats": (KEYS, "SELECT grp, sum(CAST(val AS double) / 3) AS s FROM items GROUP BY grp"),
    "extremes": (KEYS, "SELECT grp, min(val) AS a, max(note) AS b, avg(val) AS c FROM items GROUP BY grp"),
    "count_distinct": (KEYS, "SELECT grp, count(DISTINCT val) AS n FROM items GROUP BY grp"),
    "having": (KEYS, "SELECT grp, count(*) AS n FROM items GROUP BY grp HAVING count(*) > 2"),
    "two_keys": (KEYS, "SELECT grp, val, count(*) AS n FROM items GROUP BY grp, val"),
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
    "not_in": (KEYS, "SELECT id FROM items WHERE grp NOT IN (SELECT kind FROM kinds)"),
    "rank": (KEYS, "SELECT grp, id, rank() OVER (PARTITION BY grp ORDER BY val, id) AS r FROM items"),
    "running_sum": (KEYS, "SELECT id, grp, sum(val) OVER (PARTITION BY grp ORDER BY id) AS s FROM items"),
    "newest_of_a_group": (
        KEYS,
        "SELECT grp, id FROM (SELECT grp, id, rank() OVER (PARTITION BY grp ORDER BY val, id) AS r FROM items) WHERE r = 1",
    ),
    "join_and_group": (
        KEYS,
        "SELECT i.grp, sum(p.qty) AS q FROM items i JOIN parts p ON p.item = i.id GROUP BY i.grp",
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
    "total": (FULL, "SELECT count(*) AS n, sum(val) AS s FROM items"),
    "expression_key": (FULL, "SELECT val % 3 AS m, count(*) AS n FROM items GROUP BY val % 3"),
    "full_join": (FULL, "SELECT i.id, p.pid FROM items i FULL JOIN parts p ON p.item = i.id"),
    "limit": (FULL, "SELECT id FROM items ORDER BY id LIMIT 5"),
    "scalar_subquery": (FULL, "SELECT id, (SELECT max(qty) FROM parts) AS q FROM items"),
    "compared_with_a_total": (FULL, "SELECT id FROM items WHERE val > (SELECT avg(val) FROM items)"),
    "rollup": (FULL, "SELECT grp, note, count(*) AS n FROM items GROUP BY ROLLUP (grp, note)"),
    "window_of_all": (FULL, "SELECT id, rank() OVER (ORDER BY val, id) AS r FROM items"),
}
