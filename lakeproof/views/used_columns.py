"""Reads a query's analysed plan: which columns of its tables it looks at, so that no others of what changed are read.

What the plan means does not belong here (`carried_keys`). A column counts as used unless it is known that it is not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from pyspark.sql import SparkSession

from lakeproof.views.plan_trees import Trees, is_bound, kind_of

# They look at the columns that their expressions name, and pass the others on; every other node may look at all.
_BY_EXPRESSIONS = frozenset(
    ["Aggregate", "Filter", "Generate", "Join", "Project", "Sort", "SubqueryAlias", "View", "Window"]
)


def used_columns(session: SparkSession, plan: Any, names: Collection[str]) -> dict[str, frozenset[int]]:
    """Return for each table that `plan` reads, by its name in lower case, the positions of the columns that it looks at."""
    trees, bound = Trees(session), frozenset(name.lower() for name in names)
    looked_at, tables = set(_ids(trees, plan.output())), list[tuple[str, list[int]]]()
    for node in trees.plans(plan, lambda n: is_bound(n, bound)):
        if is_bound(node, bound):
            tables.append((str(node.desc().identifier().table()).lower(), _ids(trees, node.output())))
            continue
        looked_at.update(_ids(trees, node.references()))
        # A subquery's answer is compared or passed on by the expression that has it.
        for inner in trees.subqueries(node):
            looked_at.update(_ids(trees, inner.output()))
        if kind_of(node) not in _BY_EXPRESSIONS:
            for child in trees.items(node.children()):
                looked_at.update(_ids(trees, child.output()))
    used = defaultdict[str, set[int]](set)
    for name, ids in tables:
        used[name].update(position for position, number in enumerate(ids) if number in looked_at)
    return {name: frozenset(positions) for name, positions in used.items()}


def _ids(trees: Trees, attributes: Any) -> list[int]:
    return [int(attribute.exprId().id()) for attribute in trees.items(attributes.toSeq())]
