"""Walks Spark's plans and expressions over py4j: nodes, those in subqueries and common table expressions too.

What a view may contain does not belong here (`query_rules`), nor what a plan means (`carried_keys`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from pyspark.sql import SparkSession

from lakeproof.lake.spark.jvm import Jvm


def kind_of(node: Any) -> str:
    """Return the name of a node's or expression's class."""
    return str(node.getClass().getSimpleName()).rstrip("$")


def is_bound(node: Any, bound: Collection[str]) -> bool:
    """True if a node is one of the temporary views `bound`, in lower case."""
    return kind_of(node) == "View" and bool(node.isTempView()) and node.desc().identifier().table().lower() in bound


class Trees:
    """Walks Spark's plans, those in subqueries and common table expressions too."""

    def __init__(self, session: SparkSession) -> None:
        self._jvm = Jvm(session)
        loader = self._jvm.java.java.lang.Thread.currentThread().getContextClassLoader()
        load = self._jvm.java.java.lang.Class.forName
        self._command = load("org.apache.spark.sql.catalyst.plans.logical.Command", True, loader)
        self._plan_expression = load("org.apache.spark.sql.catalyst.expressions.PlanExpression", True, loader)
        self._has_plan = self._jvm.java.org.apache.spark.sql.catalyst.trees.TreePattern.PLAN_EXPRESSION()

    def items(self, sequence: Any) -> list[Any]:
        """Return a Scala sequence as a list."""
        return self._jvm.items(sequence)

    def is_command(self, node: Any) -> bool:
        """True if `node` does something instead of giving rows."""
        return bool(self._command.isInstance(node))

    def plan_of(self, expression: Any) -> Any:
        """Return the plan of a subquery, None for other expressions."""
        return expression.plan() if self._plan_expression.isInstance(expression) else None

    def plans(self, plan: Any, is_leaf: Any = lambda _: False) -> Iterator[Any]:
        """Give every node of a plan; nothing below an `is_leaf` node is visited."""
        waiting = [plan]
        while waiting:
            node = waiting.pop()
            yield node
            if is_leaf(node):
                continue
            waiting += self.items(node.children())
            if kind_of(node) == "UnresolvedWith":
                waiting += [pair._2() for pair in self.items(node.cteRelations())]  # noqa: SLF001  a Scala tuple
            waiting += self.subqueries(node)

    def subqueries(self, node: Any) -> Iterator[Any]:
        """Give the plans of the subqueries in a node's own expressions."""
        expressions = self.items(node.expressions()) if node.containsPattern(self._has_plan) else []
        while expressions:
            expression = expressions.pop()
            inner = self.plan_of(expression)
            if inner is not None:
                yield inner
            expressions += self.items(expression.children())
