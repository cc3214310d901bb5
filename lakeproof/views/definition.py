"""A view's definition: its SQL bound to the tables it reads, and what it may not be.

Writing the result belongs to `lakeproof.views.refresh`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession

from lakeproof.config.model import ViewConfig
from lakeproof.errors import ConfigError
from lakeproof.hidden_columns import HIDDEN_PREFIX, SCRATCH_PREFIX
from lakeproof.lake.rows.exact import exact_form_of_type, row_digest
from lakeproof.lake.spark.failures import reading
from lakeproof.views.query_rules import QueryRefusedError, check_analysed, check_text

_REMEDY = "correct the view's SQL file"
# And the whole lines of comment behind it.
_LAST_SEMICOLON = re.compile(r";\s*(\n[ \t]*(--[^\n]*)?)*\Z")


def definition_sha256(view: ViewConfig) -> str:
    """64 hexadecimal digits over the SQL and over what its names are bound to; raises ConfigError as `read_sql`."""
    reads = {name: [source, table.key] for name, (source, table) in view.reads.items()}
    text = json.dumps({"sql": read_sql(view), "reads": reads}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_sql(view: ViewConfig) -> str:
    """Return the SQL file's text; raises ConfigError if it can't be read or is empty."""
    try:
        text = _LAST_SEMICOLON.sub("", view.sql()).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"view {view.name}: {view.sql_file}", reason, "correct the view's sql_file") from None
    if not text:
        raise ConfigError(f"view {view.name}: {view.sql_file}", "the file has no SQL", _REMEDY)
    return text


def bind(session: SparkSession, view: ViewConfig, tables: Mapping[str, DataFrame]) -> DataFrame:
    """The view's rows, as a plan: `tables` gives a frame of `session` for each name that the SQL reads.

    `session` must be the caller's own: the names become its temporary views. Raises ConfigError if the SQL is not one query
    that Spark understands and `query_rules` allow, or its columns can't be distinguished or kept.
    """
    for name, frame in tables.items():
        frame.createOrReplaceTempView(name)
    text = read_sql(view)
    try:
        with query_errors(session, view):
            check_text(session, text)
            # Only a query can be in brackets.
            rows = session.sql(f"SELECT * FROM (\n{text}\n)")  # noqa: S608  (the view's SQL is the configuration)
            check_analysed(session, rows, tables)
    except QueryRefusedError as error:
        raise ConfigError(f"view {view.name}: {view.sql_file}", str(error), _REMEDY) from None
    _check_columns(view, rows)
    return rows


def digest_of(rows: DataFrame, columns: list[str]) -> Column:
    """The digest of each row over `columns`, by exact forms of their Spark types; raises ConfigError as it does."""
    types = {field.name: field.dataType for field in rows.schema.fields}
    return row_digest([exact_form_of_type(types[name], name) for name in columns])


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
    raise ConfigError(f"view {view.name}: {view.sql_file}", _short(error, condition), _REMEDY) from None


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
        raise ConfigError(f"view {view.name}: {view.sql_file}", "the query has no columns", _REMEDY)
    with _named(view):
        digest_of(rows, rows.columns)


def _bad_column(view: ViewConfig, column: str, reason: str) -> ConfigError:
    return ConfigError(f"view {view.name}: column {column}", reason, "give it another name with AS")


@contextmanager
def _named(view: ViewConfig) -> Iterator[Any]:
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"view {view.name}: {error.thing}", error.reason, error.remedy) from None
