"""Reads from a query's analysed plan which groups its answer has, and if their counts, sums and averages are kept by adding.

Adding belongs to `added_sums`. Sums of whole numbers and decimals are exact in any order. A view is not added if it has a
sum of floats, computes with its own sums, or filters its groups.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from lakeproof.views.incremental.carried_keys import Analysis, analyse
from lakeproof.views.incremental.collected import is_text
from lakeproof.views.incremental.plan_trees import JvmObject, Trees, analysed_plan, class_name, column_id, id_of

Role: TypeAlias = Literal["group", "rows", "count", "sum", "average", "other"]
# Values of these types are equal for grouping exactly if they are equal here.
_GROUPS = (T.BooleanType, T.IntegralType, T.DecimalType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType)
_FUNCTIONS: Mapping[str, Role] = {"count": "count", "sum": "sum", "avg": "average"}


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the answer: a value of the group, the number of its rows, what is counted or summed up of them, or other.

    `counted` and `summed` name the columns that have the count of the same values, and their sum; None if no column does.
    """

    name: str
    role: Role
    counted: str | None = None
    summed: str | None = None


@dataclass(frozen=True, slots=True)
class SumPlan:
    """A query of one GROUP BY, or of none: its columns, and what its groups are made of (`below`)."""

    outputs: tuple[Output, ...]
    below: Analysis

    @property
    def can_be_added(self) -> bool:
        """True if every column is kept up by adding, or by dividing what is."""
        averages = [o for o in self.of("average") if None in (o.counted, o.summed)]
        return not averages and not self.of("other")

    def of(self, *roles: Role) -> list[Output]:
        """Return the columns with one of these roles."""
        return [output for output in self.outputs if output.role in roles]


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of an aggregate function over `values`, in rows for which `condition` is true."""

    name: str
    role: Role
    values: JvmObject
    condition: JvmObject | None

    def is_of(self, other: _Call) -> bool:
        """True if both are over the same values of the same rows."""
        return self._same(self.values, other.values) and self._same(self.condition, other.condition)

    @staticmethod
    def _same(one: JvmObject | None, other: JvmObject | None) -> bool:
        return one is other if one is None or other is None else bool(one.semanticEquals(other))


def sums_of(session: SparkSession, rows: DataFrame, names: Collection[str]) -> SumPlan | None:
    """Return how the answer `rows` is added up, None if it is not; `names` are the temporary views that it reads."""
    if session.conf.get("spark.sql.ansi.enabled", "true") != "true":
        return None  # a sum that its type can't hold would be another number, and no error
    trees = Trees(session)
    plan = analysed_plan(rows)
    ids: list[int | None] = [id_of(attribute) for attribute in trees.items(plan.output())]
    while class_name(plan) in ("Project", "SubqueryAlias", "Sort"):
        if class_name(plan) == "Project":
            passed = {id_of(item): column_id(item) for item in trees.items(plan.projectList())}
            ids = [None if number is None else passed.get(number) for number in ids]
        (plan,) = trees.items(plan.children())
    if class_name(plan) != "Aggregate" or any(trees.has_plan(e) for e in trees.items(plan.expressions())):
        return None
    items = {id_of(item): item for item in trees.items(plan.aggregateExpressions())}
    fields = rows.schema.fields
    named = [(field, _inner(items[number])) for field, number in zip(fields, ids, strict=True) if number in items]
    if len(named) < len(fields):
        return None
    outputs = _outputs(trees, named, trees.items(plan.groupingExpressions()))
    if outputs is None:
        return None
    (below,) = trees.items(plan.children())
    return SumPlan(outputs, analyse(session, below, names))


def _inner(item: JvmObject) -> JvmObject:
    return item.child() if class_name(item) == "Alias" else item


def _outputs(
    trees: Trees, named: list[tuple[T.StructField, JvmObject]], grouping: list[JvmObject]
) -> tuple[Output, ...] | None:
    calls, groups = dict[str, _Call](), list[str]()
    missing = list(grouping)
    for field, expression in named:
        call = _call(trees, field, expression)
        if call is not None:
            calls[field.name] = call
        elif any(expression.semanticEquals(other) for other in grouping) and _is_group(field.dataType):
            groups.append(field.name)
            missing = [other for other in missing if not expression.semanticEquals(other)]
    return None if missing else tuple(_output(field.name, calls, groups) for field, _ in named)


def _is_group(kind: T.DataType) -> bool:
    return isinstance(kind, _GROUPS) or is_text(kind)


def _call(trees: Trees, field: T.StructField, expression: JvmObject) -> _Call | None:
    """Return an expression as a call whose results can be added, None for any other."""
    if class_name(expression) != "AggregateExpression" or expression.isDistinct():
        return None
    function = expression.aggregateFunction()
    role = _FUNCTIONS.get(str(function.prettyName()))
    arguments = trees.items(function.children())
    condition = expression.filter().get() if expression.filter().isDefined() else None
    if role is None or len(arguments) != 1:
        return None
    (values,) = arguments
    if role == "count":
        if class_name(values) == "Literal" and values.value() is not None and condition is None:
            role = "rows"
        return _Call(field.name, role, values, condition)
    exact = T.LongType | T.DecimalType if role == "sum" else T.DoubleType | T.DecimalType
    if not isinstance(field.dataType, exact) or str(values.dataType().simpleString()) in ("float", "double"):
        return None
    if role == "average" and not _is_exact(str(values.dataType().simpleString())):
        return None
    return _Call(field.name, role, values, condition)


def _is_exact(kind: str) -> bool:
    """True if Spark's average is the sum divided by the count: it adds whole numbers up as doubles."""
    return kind in ("tinyint", "smallint", "int") or kind.startswith("decimal(")


def _output(name: str, calls: Mapping[str, _Call], groups: Collection[str]) -> Output:
    call = calls.get(name)
    if call is None:
        return Output(name, "group" if name in groups else "other")
    if call.role in ("rows", "count"):
        return Output(name, call.role)
    same = [other for other in calls.values() if other.is_of(call)]
    counted = next((other.name for other in same if other.role == "count"), None)
    if counted is None and call.condition is None and not call.values.nullable():
        counted = next((other.name for other in calls.values() if other.role == "rows"), None)
    summed = next((other.name for other in same if other.role == "sum"), None)
    return Output(name, call.role, counted, summed)
