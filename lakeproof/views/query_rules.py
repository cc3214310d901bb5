"""Rules for a view's SQL: one query, over the names it declares, whose answer depends on nothing but their rows.

    text     ─► Spark's parser ─► one query by itself; relations by one name; table functions of the list below
    analysed ─► leaves are the bound names and constants; every expression gives the same answer each time

The first look comes before Spark opens anything, since analysing ``text.`/etc/passwd` `` already reads the file. The second
one knows what every name has become. Both walk Spark's own trees over py4j, a call per node: some 0.1 s for a large query.

Known weakness: an answer may still vary if SQL leaves it open (LIMIT without ORDER BY, row_number over equal rows); each
refresh then corrects the view to one of the answers.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame, SparkSession

from lakeproof.lake.spark.jvm import Jvm
from lakeproof.views.incremental.plan_trees import JvmObject, Trees, analysed_plan, class_name, is_bound

# Functions in FROM that read nothing but their arguments; Delta's `table_changes` and readers of files are none.
_TABLE_FUNCTIONS = frozenset(
    [
        "collations",
        "explode",
        "explode_outer",
        "inline",
        "inline_outer",
        "json_tuple",
        "posexplode",
        "posexplode_outer",
        "range",
        "stack",
        "variant_explode",
        "variant_explode_outer",
    ]
)
_CONSTANT_LEAVES = frozenset({"CTERelationRef", "LocalRelation", "OneRowRelation", "Range", "UnionLoopRef"})
# Deterministic to Spark, since it evaluates each once per query.
_BY_MOMENT = frozenset(
    [
        "CurrentBatchTimestamp",
        "CurrentCatalog",
        "CurrentDatabase",
        "CurrentDate",
        "CurrentTime",
        "CurrentTimestamp",
        "CurrentUser",
        "LocalTimestamp",
        "LocalTimestampWithoutTZ",
        "Now",
        "SessionUser",
    ]
)
# They return the row that happens to come first, or all in the order in which they come.
_BY_ORDER = frozenset({"AnyValue", "CollectList", "CollectSet", "First", "Last", "ListAgg"})
_ORDERING = frozenset({"ArraySort", "SortArray"})
_PASSED_THROUGH = frozenset({"AggregateExpression", "Alias"})


class QueryRefusedError(ValueError):
    """The text of the query breaks a rule, which `str()` names."""


def check_text(session: SparkSession, text: str) -> None:
    """Raise QueryRefusedError unless `text` is one query that names nothing by path or catalog; reads no data."""
    trees = Trees(session)
    # Alone, without the brackets that it is put in: "SELECT 1) UNION ALL (SELECT 2" is a query only inside them.
    plan = Jvm(session).jsession.sessionState().sqlParser().parsePlan(text)
    for node in trees.plans(plan):
        kind = class_name(node)
        if trees.is_command(node):
            raise QueryRefusedError("it is a command, not a query")
        if kind == "UnresolvedRelation":
            parts = [str(part) for part in trees.items(node.multipartIdentifier())]
            if len(parts) > 1:
                raise QueryRefusedError(f"it reads {'.'.join(parts)}, which is not one of the names in `reads`")
        elif kind == "UnresolvedTableValuedFunction":
            name = ".".join(map(str, trees.items(node.name())))
            if name.lower() not in _TABLE_FUNCTIONS:
                raise QueryRefusedError(f"it reads from the function {name}")
        elif kind == "PlanWithUnresolvedIdentifier":
            raise QueryRefusedError("it computes the name of what it reads (IDENTIFIER)")


def check_analysed(session: SparkSession, rows: DataFrame, names: Collection[str]) -> None:
    """Raise QueryRefusedError unless `rows` reads the temporary views `names` alone, and always gives the same answer."""
    trees = Trees(session)
    bound = {name.lower() for name in names}
    for node in trees.plans(analysed_plan(rows), lambda n: is_bound(n, bound)):
        kind = class_name(node)
        if kind == "Sample":
            raise QueryRefusedError("it takes a random sample (TABLESAMPLE)")
        if is_bound(node, bound):
            continue
        if not trees.items(node.children()) and kind not in _CONSTANT_LEAVES:
            raise QueryRefusedError(f"it reads something beside the names in `reads`: {node.simpleString(2)}")
        for expression in trees.items(node.expressions()):
            _check_expression(trees, expression, ordered=False)


def _check_expression(trees: Trees, expression: JvmObject, *, ordered: bool) -> None:
    """Check one expression; `ordered`: an expression above it sorts the rows or the collected values."""
    kind, children = class_name(expression), trees.items(expression.children())
    if kind in _BY_MOMENT:
        raise QueryRefusedError(f"it calls {_call(expression)}, whose answer depends on when and by whom it is asked")
    if kind in ("CallMethodViaReflection", "TryReflect"):
        raise QueryRefusedError(f"it calls {_call(expression)}, which runs any Java method")
    if kind in _BY_ORDER and not ordered and not (kind == "ListAgg" and trees.items(expression.orderExpressions())):
        raise QueryRefusedError(
            f"it calls {_call(expression)}, whose answer depends on the order of rows: use min_by or max_by, or sort with "
            "array_sort or WITHIN GROUP"
        )
    if (
        not expression.deterministic()
        and all(child.deterministic() for child in children)
        and not trees.plan_of(expression)
    ):
        raise QueryRefusedError(f"it calls {_call(expression)}, whose answer differs from time to time")
    # A window without ORDER BY has the rows as they come.
    orders = kind in _ORDERING or (
        kind == "WindowExpression" and bool(trees.items(expression.windowSpec().orderSpec()))
    )
    for child in children:
        _check_expression(trees, child, ordered=orders or (ordered and kind in _PASSED_THROUGH))


def _call(expression: JvmObject) -> str:
    return f"{expression.prettyName()}()"
