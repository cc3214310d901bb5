"""Walks Spark's plans and expressions over py4j: nodes, those in subqueries and common table expressions too.

So it says which columns of its tables a query looks at, so that no others of what changed are read; a column counts as used
unless it is known that it is not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from typing import Any, Protocol, cast

from pyspark.sql import DataFrame, SparkSession

from lakeproof.lake.spark.jvm import Jvm, items


class JvmObject(Protocol):
    """An object of Spark's JVM, by py4j: what its methods answer is known to whoever calls them."""

    def __getattr__(self, name: str) -> Callable[..., Any]: ...


def analysed_plan(rows: DataFrame) -> JvmObject:
    """Return the plan of a frame, with every name resolved."""
    plan: JvmObject = cast("Any", rows)._jdf.queryExecution().analyzed()  # noqa: SLF001  no public name for the plan
    return plan


def class_name(node: JvmObject) -> str:
    """Return the name of a node's or expression's class."""
    return str(node.getClass().getSimpleName()).rstrip("$")


def id_of(named: JvmObject) -> int:
    """Return the id of a named expression, by which other nodes refer to it."""
    return int(named.exprId().id())


def column_id(expression: JvmObject) -> int | None:
    """Return the id of the column that an expression is, perhaps under another name; None for any other expression."""
    kind = class_name(expression)
    if kind == "Alias":
        return column_id(expression.child())
    return id_of(expression) if kind == "AttributeReference" else None


def is_bound(node: JvmObject, bound: Collection[str]) -> bool:
    """True if a node is one of the temporary views `bound`, in lower case."""
    return class_name(node) == "View" and bool(node.isTempView()) and node.desc().identifier().table().lower() in bound


class Trees:
    """Walks Spark's plans, those in subqueries and common table expressions too."""

    def __init__(self, session: SparkSession) -> None:
        self._jvm = Jvm(session)
        loader = self._jvm.java.java.lang.Thread.currentThread().getContextClassLoader()
        load = self._jvm.java.java.lang.Class.forName
        self._command = load("org.apache.spark.sql.catalyst.plans.logical.Command", True, loader)
        self._plan_expression = load("org.apache.spark.sql.catalyst.expressions.PlanExpression", True, loader)
        self._has_plan = self._jvm.java.org.apache.spark.sql.catalyst.trees.TreePattern.PLAN_EXPRESSION()

    def items(self, sequence: JvmObject) -> list[JvmObject]:
        """Return a Scala sequence as a list."""
        return items(sequence)

    def is_command(self, node: JvmObject) -> bool:
        """True if `node` does something instead of giving rows."""
        return bool(self._command.isInstance(node))

    def plan_of(self, expression: JvmObject) -> JvmObject | None:
        """Return the plan of a subquery, None for other expressions."""
        return expression.plan() if self._plan_expression.isInstance(expression) else None

    def plans_in(self, expression: JvmObject) -> Iterator[JvmObject]:
        """Give the plans of the subqueries in an expression."""
        plan = self.plan_of(expression)
        if plan is not None:
            yield plan
        for child in self.items(expression.children()):
            yield from self.plans_in(child)

    def has_plan(self, expression: JvmObject) -> bool:
        """True if there is a subquery in an expression."""
        return any(True for _ in self.plans_in(expression))

    def plans(self, plan: JvmObject, is_leaf: Callable[[JvmObject], bool] = lambda _: False) -> Iterator[JvmObject]:
        """Give every node of a plan; nothing below an `is_leaf` node is visited."""
        waiting = [plan]
        while waiting:
            node = waiting.pop()
            yield node
            if is_leaf(node):
                continue
            waiting += self.items(node.children())
            if class_name(node) == "UnresolvedWith":
                waiting += [pair._2() for pair in self.items(node.cteRelations())]  # noqa: SLF001  a Scala tuple
            waiting += self.subqueries(node)

    def subqueries(self, node: JvmObject) -> Iterator[JvmObject]:
        """Give the plans of the subqueries in a node's own expressions."""
        expressions = self.items(node.expressions()) if node.containsPattern(self._has_plan) else []
        while expressions:
            expression = expressions.pop()
            inner = self.plan_of(expression)
            if inner is not None:
                yield inner
            expressions += self.items(expression.children())


# They look at the columns that their expressions name, and pass the others on; every other node may look at all.
_BY_EXPRESSIONS = frozenset(
    ["Aggregate", "Filter", "Generate", "Join", "Project", "Sort", "SubqueryAlias", "View", "Window"]
)


def used_columns(trees: Trees, plan: JvmObject, bound: Collection[str]) -> dict[str, frozenset[int]]:
    """Return for each table of `bound` that `plan` reads the positions of the columns that it looks at."""
    looked_at, tables = set(_ids(trees, plan.output())), list[tuple[str, list[int]]]()
    for node in trees.plans(plan, lambda n: is_bound(n, bound)):
        if is_bound(node, bound):
            tables.append((str(node.desc().identifier().table()).lower(), _ids(trees, node.output())))
            continue
        looked_at.update(_ids(trees, node.references()))
        # A subquery's answer is compared or passed on by the expression that has it.
        for inner in trees.subqueries(node):
            looked_at.update(_ids(trees, inner.output()))
        if class_name(node) not in _BY_EXPRESSIONS:
            for child in trees.items(node.children()):
                looked_at.update(_ids(trees, child.output()))
    used = defaultdict[str, set[int]](set)
    for name, ids in tables:
        used[name].update(position for position, number in enumerate(ids) if number in looked_at)
    return {name: frozenset(positions) for name, positions in used.items()}


def _ids(trees: Trees, attributes: JvmObject) -> list[int]:
    return [id_of(attribute) for attribute in trees.items(attributes.toSeq())]
