"""Checks the Great Expectations of the configuration on current tables, at the newest cut.

Opening a table does not belong here (`lakeproof.lake.read.open`). Importing Great Expectations takes seconds, so it is
imported when a check runs. A result has counts and never a value of a row.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession

from lakeproof.config.model import Config, SourceConfig
from lakeproof.errors import ConfigError
from lakeproof.lake.read.open import OpenedLake, open_lake
from lakeproof.lake.spark.failures import without_java
from lakeproof.lake.spark.session import driver_lives
from lakeproof.lsn import Lsn
from lakeproof.names import TableName

_NOT_IN_NAMES = re.compile(r"\W+", re.ASCII)
# A result may show only counts. Everything else contains values of rows.
_COUNTS = ("element_count", "unexpected_count", "unexpected_percent", "missing_count", "missing_percent")


@dataclass(frozen=True, slots=True)
class Expectation:
    """One entry of `expectations` in the configuration, under its own name."""

    name: str
    type: str
    kwargs: Mapping[str, Any]
    severity: Literal["error", "warn"]


@dataclass(frozen=True, slots=True)
class Expected:
    """The result of one expectation; `counts` are of rows, with `error` in place of them if it could not be computed."""

    name: str
    passed: bool
    counts: Mapping[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExpectReport:
    """The results of each table's expectations, at the newest cut, which has this `position`."""

    source: str
    position: Lsn
    tables: Mapping[TableName, Sequence[Expected]]

    @property
    def all_passed(self) -> bool:
        """True if every expectation is met."""
        return all(result.passed for results in self.tables.values() for result in results)


def expectations(source: SourceConfig, table: TableName) -> list[Expectation]:
    """Return the configured expectations of a table, each with a unique name made from its type and columns."""
    result: list[Expectation] = []
    names: set[str] = set()
    for entry in source.table_config(table).expectations:
        kwargs = dict(entry.get("kwargs", {}))
        columns = [str(kwargs[key]) for key in ("column", "column_A", "column_B") if key in kwargs]
        columns += [str(name) for name in kwargs.get("column_list", ())]
        base = _NOT_IN_NAMES.sub("_", "__".join([str(entry["type"]), *columns])).strip("_")
        name, number = base, 1
        while name in names:
            number += 1
            name = f"{base}_{number}"
        names.add(name)
        warns = str(entry.get("severity", "error")).lower() in ("warn", "warning", "info")
        result.append(Expectation(name, str(entry["type"]), kwargs, "warn" if warns else "error"))
    return result


@without_java(lambda _config, name, *_, **__: name)
def expect(config: Config, name: str, tables: Sequence[TableName] | None, spark: SparkSession) -> ExpectReport:
    """Check the expectations of `tables`, or of all that the configuration has some for.

    Raises ConfigError for a table without expectations, and for an expectation that Great Expectations refuses; LakeError
    for a table that is not in the lake.
    """
    source = config.source(name)
    existing = {table: checks for table in source.table if (checks := expectations(source, table))}
    for table in tables or ():
        if table not in existing:
            names = ", ".join(map(str, existing)) or "none"
            reason = "the configuration has no expectations of it"
            raise ConfigError(f"table {table}", reason, f"tables of {name} that have some: {names}")
    opened = open_lake(spark, config)
    chosen = existing if tables is None else {table: existing[table] for table in dict.fromkeys(tables)}
    results = {table: _check_table(opened, name, table, checks) for table, checks in chosen.items()}
    return ExpectReport(name, opened.position(name), results)


def _check_table(
    opened: OpenedLake, source: str, table: TableName, checks: Sequence[Expectation]
) -> Sequence[Expected]:
    frame = opened.table(source, str(table))
    with driver_lives(frame.sparkSession):
        return validate(frame, str(table), checks)


def validate(frame: DataFrame, name: str, checks: Sequence[Expectation]) -> list[Expected]:
    """Run the expectations on a DataFrame; return their results in order.

    Raises ConfigError for an expectation that Great Expectations does not know or whose arguments it refuses.
    """
    # Set before the import, which reads it once: otherwise Great Expectations sends usage data to its makers.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    with warnings.catch_warnings(), _main_module_with_file():
        # Its import and its use of Spark raise deprecation warnings that we can't fix.
        warnings.simplefilter("ignore")
        results = _results(frame, name, checks)
    # Match results by the name in their meta: their order differs.
    by_check: dict[str, Any] = {}
    for result in results:
        meta = (result.expectation_config and result.expectation_config.meta) or {}
        by_check[meta["check"]] = result
    return [Expected(e.name, bool(by_check[e.name].success), _counts(by_check[e.name])) for e in checks]


@contextmanager
def _main_module_with_file() -> Iterator[None]:
    """Give `__main__` a `__file__` for a while if it has none, as in the processes that Dagster spawns for runs.

    When Great Expectations imports PySpark, PySpark takes a process without it for a doctest and ends it with status 0. The
    attribute is removed afterwards: multiprocessing would run that file in this process's own children.
    """
    main = sys.modules["__main__"]
    if hasattr(main, "__file__"):
        yield
        return
    main.__file__ = __file__
    try:
        yield
    finally:
        del main.__file__


def _results(frame: DataFrame, name: str, checks: Sequence[Expectation]) -> Sequence[Any]:
    import great_expectations as gx
    from great_expectations.exceptions.exceptions import GreatExpectationsError
    from pydantic.v1 import ValidationError

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}  # type: ignore[assignment]  # a dict is what its setter takes
    asset = context.data_sources.add_spark(name="lake").add_dataframe_asset(name=name)
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    entries = [{"type": e.type, "kwargs": dict(e.kwargs), "meta": {"check": e.name}} for e in checks]
    try:
        suite = gx.ExpectationSuite(name=name, expectations=entries)
    except (GreatExpectationsError, ValidationError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"expectations of {name}", reason, "correct them in the configuration") from None
    return batch.validate(suite, result_format="SUMMARY").results


def _counts(result: Any) -> dict[str, int | float | str]:
    counts = {k: result.result[k] for k in _COUNTS if isinstance(result.result.get(k), int | float)}
    if (result.exception_info or {}).get("raised_exception"):
        # Spark's message may quote a row.
        counts["error"] = "it could not be computed; check that the column exists and that its type fits"
    return counts
