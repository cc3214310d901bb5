"""Reads a query's analysed plan: which columns of its tables its answer can be restricted by, and if it is linear in them.

Computing anything does not belong here (`strategies`). The plan is Spark's own, so the names are those that Spark resolved.
What is not known here carries nothing, and makes nothing linear: the view is then computed as a whole.

A *place* is a column of one occurrence of a table in the query. A column of the answer *carries* places if the answer's rows
with certain values there depend on no other rows of those occurrences than the ones with these values in their places:

    filter, sort      keeps what its input carries; `a = b` makes both carry the places of both
    projection        keeps it for columns that are passed on as they are
    inner join        as a filter; a left join keeps the left side's, together with the right side's of an equal column
    EXISTS, IN        keeps it, together with the places of the column that is compared with it
    GROUP BY, PARTITION BY, DISTINCT    keeps it for the columns of the key
    UNION, EXCEPT, INTERSECT            keeps it column by column, the places of all branches together

A query is *linear* if it consists of filters, projections, inner joins and UNION ALL: the change of its answer is then the
sum of its answers for the change of each table, with the other tables as they were or are.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TypeAlias, cast

from pyspark.sql import SparkSession

from lakeproof.views.incremental.plan_trees import (
    JvmObject,
    Trees,
    class_name,
    column_id,
    id_of,
    is_bound,
    used_columns,
)

# A column's alternatives; more of them would only be other ways to the same.
_ALTERNATIVES_MAX = 6
# The number of an occurrence, and the position of one of its columns.
Places: TypeAlias = frozenset[tuple[int, int]]
_Carried: TypeAlias = dict[int, frozenset[Places]]
_Components: TypeAlias = tuple[frozenset[int], ...]

_SAME_ROWS = frozenset({"ResolvedHint", "Sort", "SubqueryAlias"})


@dataclass(frozen=True, slots=True)
class CarriedKey:
    """A column of the answer by which it can be restricted: `columns` has, for each occurrence, the column's position."""

    output: str
    columns: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Analysis:
    """The result for a plan: `occurrences` are the tables' names by number, in lower case; `keys` the carried keys.

    `components`: the sets of occurrences that are joined with each other, whose answers are added up; None if it is not
    linear. `used`: for each table the positions of the columns that the query looks at.
    """

    occurrences: tuple[str, ...]
    keys: tuple[CarriedKey, ...]
    components: _Components | None
    used: Mapping[str, frozenset[int]]

    def occurrences_of(self, tables: Container[str]) -> list[int]:
        """Return the numbers of the occurrences of some tables."""
        return [number for number, name in enumerate(self.occurrences) if name in tables]


@dataclass(frozen=True, slots=True)
class _Seen:
    """The result for a node: what it carries, by its output's expression ids, and its components."""

    carried: _Carried = field(default_factory=dict)
    components: _Components | None = None


def analyse(
    session: SparkSession, plan: JvmObject, names: Collection[str], columns: Sequence[str] | None = None
) -> Analysis:
    """Return what a plan says that reads the temporary views `names` of `session`; without its `columns`, no keys."""
    trees, bound = Trees(session), frozenset(name.lower() for name in names)
    reader = _Reader(trees, bound)
    seen, used = reader.node(plan), used_columns(trees, plan, bound)
    if used.keys() != set(reader.occurrences):
        return Analysis(tuple(used), (), None, used)
    keys = [
        CarriedKey(name, dict(places))
        for name, number in ([] if columns is None else zip(columns, reader.outputs(plan), strict=True))
        for places in seen.carried.get(number, ())
        if places
    ]
    return Analysis(tuple(reader.occurrences), tuple(keys), seen.components, used)


class _Reader:
    """Reads one plan from its leaves up; `occurrences` grows with each table that it meets."""

    def __init__(self, trees: Trees, bound: Collection[str]) -> None:
        self._trees, self._bound = trees, bound
        self._shared: dict[int, JvmObject] = {}
        self.occurrences: list[str] = []

    def outputs(self, node: JvmObject) -> list[int]:
        """Return the expression ids of a node's columns."""
        return [id_of(attribute) for attribute in self._trees.items(node.output())]

    def node(self, node: JvmObject) -> _Seen:
        """Return what a node carries."""
        if is_bound(node, self._bound):
            number = len(self.occurrences)
            self.occurrences.append(str(node.desc().identifier().table()).lower())
            carried = {a: frozenset([frozenset([(number, i)])]) for i, a in enumerate(self.outputs(node))}
            return _Seen(carried, (frozenset([number]),))
        kind, subqueries = class_name(node), list(self._trees.subqueries(node))
        # A condition's subqueries are known; a value that any other node computes with one is anybody's.
        if subqueries and kind != "Filter":
            return self._unknown(node, subqueries)
        if kind in _SAME_ROWS or (kind == "View" and not node.isTempView()):
            return self.node(self._child(node))
        method = getattr(self, f"_of_{kind.lower()}", None)
        if method is not None:
            return cast("_Seen", method(node))
        return self._unknown(node, subqueries)

    def _unknown(self, node: JvmObject, subqueries: Iterable[JvmObject]) -> _Seen:
        """Carry nothing; the node's tables are in the query."""
        for plan in (*self._children(node), *subqueries):
            self.node(plan)
        return _Seen()

    # Nodes, by the names of their classes -------------------------------------------------------

    def _of_project(self, node: JvmObject) -> _Seen:
        below = self.node(self._child(node))
        return _Seen(self._renamed(self._trees.items(node.projectList()), below.carried), below.components)

    def _of_filter(self, node: JvmObject) -> _Seen:
        below = self.node(self._child(node))
        carried, linear = dict(below.carried), True
        conjuncts = list(self._conjuncts(node.condition()))
        for conjunct in conjuncts:
            if self._trees.has_plan(conjunct):
                linear = False
                carried = self._with_subquery(conjunct, carried)
        carried = _equated(carried, self._equalities(conjuncts))
        return _Seen(carried, below.components if linear else None)

    def _of_join(self, node: JvmObject) -> _Seen:
        left, right = self.node(node.left()), self.node(node.right())
        condition = node.condition()
        conjuncts = list(self._conjuncts(condition.get())) if condition.isDefined() else []
        equalities = list(self._equalities(conjuncts))
        match class_name(node.joinType()):
            case "Inner" | "Cross":
                both = _equated({**left.carried, **right.carried}, equalities)
                return _Seen(both, _joined(left.components, right.components))
            case "LeftOuter" | "LeftSemi" | "LeftAnti":
                return _Seen(_preserved(left.carried, right.carried, equalities))
            case "RightOuter":
                return _Seen(_preserved(right.carried, left.carried, equalities))
        return _Seen()

    def _of_aggregate(self, node: JvmObject) -> _Seen:
        below = self.node(self._child(node))
        kept = self._only(below.carried, node.groupingExpressions())
        return _Seen(self._renamed(self._trees.items(node.aggregateExpressions()), kept))

    def _of_window(self, node: JvmObject) -> _Seen:
        below = self.node(self._child(node))
        return _Seen(self._only(below.carried, node.partitionSpec()))

    def _of_distinct(self, node: JvmObject) -> _Seen:
        return _Seen(self.node(self._child(node)).carried)

    def _of_generate(self, node: JvmObject) -> _Seen:
        return self.node(self._child(node))

    def _of_union(self, node: JvmObject) -> _Seen:
        children = self._children(node)
        branches = [self.node(child) for child in children]
        components: _Components | None = ()
        for branch in branches:
            components = None if components is None or branch.components is None else components + branch.components
        return _Seen(self._by_position(node, children, branches), components)

    def _of_except(self, node: JvmObject) -> _Seen:
        children = self._children(node)
        return _Seen(self._by_position(node, children, [self.node(child) for child in children]))

    _of_intersect = _of_except

    def _of_withcte(self, node: JvmObject) -> _Seen:
        for definition in self._trees.items(node.cteDefs()):
            self._shared[int(definition.id())] = self._child(definition)
        return self.node(node.plan())

    def _of_cterelationref(self, node: JvmObject) -> _Seen:
        shared = self._shared.get(int(node.cteId()))
        if shared is None or node.recursive():
            return _Seen()
        # Each reference is a query of its own: its tables occur once more.
        below = self.node(shared)
        names = dict(zip(self.outputs(shared), self.outputs(node), strict=True))
        return _Seen({names[a]: c for a, c in below.carried.items() if a in names}, below.components)

    # Parts of nodes -----------------------------------------------------------------------------

    def _children(self, node: JvmObject) -> list[JvmObject]:
        return self._trees.items(node.children())

    def _child(self, node: JvmObject) -> JvmObject:
        (child,) = self._children(node)
        return child

    def _only(self, carried: _Carried, expressions: JvmObject) -> _Carried:
        """Return what is carried by the columns among some expressions."""
        columns = {column_id(expression) for expression in self._trees.items(expressions)}
        return {column: alternatives for column, alternatives in carried.items() if column in columns}

    def _renamed(self, items: Iterable[JvmObject], carried: _Carried) -> _Carried:
        """Return what is carried by columns that are passed on as they are, perhaps under another name."""
        result: _Carried = {}
        for item in items:
            column = column_id(item)
            if column in carried:
                result[id_of(item)] = carried[column]
        return result

    def _by_position(self, node: JvmObject, children: list[JvmObject], branches: list[_Seen]) -> _Carried:
        result: _Carried = {}
        columns = zip(self.outputs(node), *(self.outputs(child) for child in children), strict=True)
        for output, *inner in columns:
            best = [_best(branch.carried.get(a, frozenset())) for branch, a in zip(branches, inner, strict=True)]
            merged = frozenset().union(*best)
            if merged:
                result[output] = frozenset([merged])
        return result

    def _conjuncts(self, expression: JvmObject) -> Iterator[JvmObject]:
        if class_name(expression) == "And":
            yield from self._conjuncts(expression.left())
            yield from self._conjuncts(expression.right())
        else:
            yield expression

    def _equalities(self, conjuncts: Iterable[JvmObject]) -> Iterator[tuple[int, int]]:
        for conjunct in conjuncts:
            if class_name(conjunct) not in ("EqualTo", "EqualNullSafe"):
                continue
            left, right = column_id(conjunct.left()), column_id(conjunct.right())
            if left is not None and right is not None:
                yield left, right

    def _with_subquery(self, conjunct: JvmObject, carried: _Carried) -> _Carried:
        """Return what rows that a condition with a subquery leaves carry: what they did, with the subquery's places."""
        is_negated = class_name(conjunct) == "Not"
        inner = conjunct.child() if is_negated else conjunct
        match class_name(inner):
            case "Exists":
                below, equalities = self._correlated(inner.plan())
                return _preserved(carried, below, equalities)
            case "InSubquery" if not any(map(self._trees.has_plan, self._trees.items(inner.values()))):
                plan = inner.query().plan()
                below = self.node(plan).carried
                values = self._trees.items(inner.values())
                equalities = [
                    (column, other)
                    for column, other in zip(map(column_id, values), self.outputs(plan), strict=False)
                    # NOT IN asks whether there is a NULL among all values.
                    if column is not None and not is_negated
                ]
                return _preserved(carried, below, equalities)
        for plan in self._trees.plans_in(conjunct):
            self.node(plan)
        return {}

    def _correlated(self, plan: JvmObject) -> tuple[_Carried, list[tuple[int, int]]]:
        """Return what the rows of an EXISTS carry, and which of their columns equal columns of the outer query."""
        while class_name(plan) in ("Project", "SubqueryAlias"):
            plan = self._child(plan)
        if class_name(plan) != "Filter":
            self.node(plan)
            return {}, []
        below = self.node(self._child(plan)).carried
        conjuncts = list(self._conjuncts(plan.condition()))
        if any(self._trees.has_plan(conjunct) for conjunct in conjuncts):
            for conjunct in conjuncts:
                for inner in self._trees.plans_in(conjunct):
                    self.node(inner)
            return {}, []
        pairs = []
        for conjunct in conjuncts:
            if class_name(conjunct) != "EqualTo":
                continue
            for outer, inner in ((conjunct.left(), conjunct.right()), (conjunct.right(), conjunct.left())):
                column = column_id(inner)
                if class_name(outer) == "OuterReference" and column is not None:
                    pairs.append((id_of(outer), column))
        return _equated(below, self._equalities(conjuncts)), pairs


def _best(alternatives: frozenset[Places]) -> Places:
    return max(alternatives, key=lambda places: (len(places), sorted(places)), default=frozenset())


def _merged(one: Places, other: Places) -> Places:
    """Return the places of both; an occurrence has one column."""
    return one | {(number, column) for number, column in other if number not in {n for n, _ in one}}


def _few(alternatives: Iterable[Places]) -> frozenset[Places]:
    ordered = sorted(set(alternatives), key=lambda places: (-len(places), sorted(places)))
    return frozenset(ordered[:_ALTERNATIVES_MAX])


def _equated(carried: _Carried, equalities: Iterable[tuple[int, int]]) -> _Carried:
    """Let columns that are equal in every row carry each other's places too."""
    result = dict(carried)
    pairs = list(equalities)
    for _ in pairs:
        for a, b in pairs:
            both = result.get(a, frozenset()) | result.get(b, frozenset())
            merged = _merged(_best(result.get(a, frozenset())), _best(result.get(b, frozenset())))
            if merged:
                result[a] = result[b] = _few([*both, merged])
    return result


def _preserved(kept: _Carried, other: _Carried, equalities: Iterable[tuple[int, int]]) -> _Carried:
    """Return what the rows of the side `kept` carry; a column that the other side's must equal carries its places too."""
    result = dict(kept)
    for a, b in equalities:
        inside, outside = (a, b) if a in kept or b in other else (b, a)
        if inside in result and outside in other:
            merged = _merged(_best(result[inside]), _best(other[outside]))
            result[inside] = _few([*result[inside], merged])
    return result


def _joined(left: _Components | None, right: _Components | None) -> _Components | None:
    if left is None or right is None:
        return None
    return tuple(one | other for one, other in product(left, right))
