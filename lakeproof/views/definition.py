"""A view's definition: its SQL bound to the tables it reads, its columns beside the table's, and what it may not be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession

from lakeproof.config.model import ViewConfig
from lakeproof.errors import ConfigError
from lakeproof.hidden_columns import DUP, HIDDEN_PREFIX, SCRATCH_PREFIX
from lakeproof.lake.columns import needs_mapping
from lakeproof.lake.records.views.definitions import AppliedView, read_sql
from lakeproof.lake.rows.columns import digest_of_columns, pick
from lakeproof.lake.spark.failures import reading
from lakeproof.views.query_rules import QueryRefusedError, check_analysed, check_text


def bind(session: SparkSession, view: ViewConfig, tables: Mapping[str, DataFrame]) -> DataFrame:
    """The view's rows, as a plan: `tables` gives a frame of `session` for each name that the SQL reads.

    `session` must be the caller's own: the names become its temporary views. Raises ConfigError if the SQL is not one query
    that Spark understands and `query_rules` allow, or its columns can't be distinguished or kept.
    """
    text = read_sql(view)
    try:
        with query_errors(session, view):
            check_text(session, text)
            rows = bind_again(session, text, tables)
            check_analysed(session, rows, tables)
    except QueryRefusedError as error:
        raise _refused(view, str(error)) from None
    _check_columns(view, rows)
    return rows


def bind_again(session: SparkSession, text: str, tables: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of a query that `bind` has checked, over other frames under the same names."""
    for name, frame in tables.items():
        frame.createOrReplaceTempView(name)
    # Only a query can be in brackets.
    return session.sql(f"SELECT * FROM (\n{text}\n)")  # noqa: S608  (the view's SQL is the configuration)


def digest_of_stored(rows: DataFrame) -> Column:
    """Return the digest that rows of a view's table should have: of the columns that are no hidden ones."""
    return digest_of_columns(rows, [c for c in rows.columns if not c.startswith((HIDDEN_PREFIX, SCRATCH_PREFIX))])


def in_order_of(stored: DataFrame | None, rows: DataFrame) -> DataFrame:
    """A query's rows with the columns in the table's order, if they are the same: a digest is of columns in an order."""
    order = rows.columns if stored is None else [c for c in stored.columns if not c.startswith(HIDDEN_PREFIX)]
    return rows if order == rows.columns or set(order) != set(rows.columns) else pick(rows, order)


@contextmanager
def query_errors(session: SparkSession, view: ViewConfig) -> Iterator[None]:
    """Turn Spark's error about the query in the block into ConfigError, in Spark's own short words.

    If the query already ran, only the error's condition is reported: its sentence may contain values.
    """
    with reading(session) as attempt:
        yield
    error = attempt.error
    if error is None:
        return
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    if condition is None or condition.startswith(("DELTA_", "INTERNAL_ERROR")):
        raise error
    raise _refused(view, _short(error, condition)) from None


def _refused(view: ViewConfig, reason: str) -> ConfigError:
    if isinstance(view, AppliedView):
        remedy = f"correct {view.sql_file.name}, then run `lakeproof replace {view.name}`"
        return ConfigError(f"view {view.name}: its applied query", reason, remedy)
    return ConfigError(f"view {view.name}: {view.sql_file}", reason, "correct the view's SQL file")


def _short(error: BaseException, condition: str) -> str:
    if type(error).__name__ not in ("AnalysisException", "ParseException"):
        return f"the query failed with {condition}"
    lines = str(error).strip().splitlines()
    return lines[0].split(" SQLSTATE:")[0].rstrip(";. ") if lines else condition


def _check_columns(view: ViewConfig, rows: DataFrame) -> None:
    seen: set[str] = set()
    for field in rows.schema.fields:
        folded = field.name.casefold()
        if folded.startswith((HIDDEN_PREFIX, SCRATCH_PREFIX)):
            prefix = HIDDEN_PREFIX if folded.startswith(HIDDEN_PREFIX) else SCRATCH_PREFIX
            raise _bad_column(view, field.name, f"its name begins with {prefix}, which is reserved for hidden columns")
        if folded in seen:
            raise _bad_column(view, field.name, "another column of the query has the same name")
        seen.add(folded)
    if not seen:
        raise _refused(view, "the query has no columns")
    try:
        digest_of_columns(rows, rows.columns)
    except ConfigError as error:
        raise ConfigError(f"view {view.name}: {error.thing}", error.reason, error.remedy) from None


def _bad_column(view: ViewConfig, column: str, reason: str) -> ConfigError:
    return ConfigError(f"view {view.name}: column {column}", reason, "give it another name with AS")


def columns_of(rows: DataFrame) -> dict[str, str]:
    """Return the columns with their types, those of a view's table whether or not `rows` has its numbers."""
    return {f.name: f.dataType.simpleString() for f in rows.schema.fields} | {DUP: "bigint"}


def check_same_columns(view: str, desired: DataFrame, stored: DataFrame) -> None:
    """Raise ConfigError if the query's columns are not the table's."""
    now, then = columns_of(desired), columns_of(stored)
    if now != then:
        changed = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
        raise ConfigError(
            f"view {view}",
            f"its query gives other columns than its table has: {', '.join(changed)}",
            f"see what would change with `lakeproof replace {view}`, and apply it",
        )


def check_names(view: str, desired: DataFrame, metadata: Mapping[str, Any]) -> None:
    """Raise ConfigError for a name that the files of the table with this `metaData` can't have."""
    if needs_mapping(desired.columns) and "delta.columnMapping.mode" not in (metadata.get("configuration") or {}):
        odd = next(name for name in desired.columns if needs_mapping([name]))
        reason = "Parquet refuses a character in its name, and the view's table was made for other names"
        raise ConfigError(f"view {view}: column {odd}", reason, "give it another name with AS")
