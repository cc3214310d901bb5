"""Evaluates expectations with Great Expectations, and reduces its results to counts and the few values that may be shown.

The choice of tables and expectations is in `lakeproof.commands.expect`. Importing Great Expectations takes seconds, so it is
imported when something is evaluated; it sends nothing to its makers.

What may be shown is a list of what is allowed, and nothing else: the values of the columns that an expectation names, none
of which is secret, and a count of rows. So a secret column's values are neither in a result nor in an error.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakeproof.errors import ConfigError
from lakeproof.events import counted
from lakeproof.expectations.configured import COLUMN_ARGUMENTS, Expectation

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # it ships no types
    from pyspark.sql import DataFrame

# At most so many values in a result, each of so many characters.
VALUES_MAX = 10
VALUE_TEXT_MAX = 80
_COUNTS = ("element_count", "unexpected_count", "unexpected_percent", "missing_count", "missing_percent")
_NOT_COMPUTED = "it could not be computed; check that the column exists and that its type fits"


@dataclass(frozen=True, slots=True)
class Shown:
    """The columns whose values may be shown: none unless `values`, and never a `secret` one."""

    values: bool = False
    secret: frozenset[str] = frozenset()

    def allows(self, expectation: Expectation) -> bool:
        """True if what the result says of its columns' values may be shown."""
        # As Great Expectations finds a column: whatever its case.
        columns = {name.casefold() for name in expectation.columns}
        return self.values and bool(columns) and columns.isdisjoint(name.casefold() for name in self.secret)


NOTHING_SHOWN = Shown()


@dataclass(frozen=True, slots=True)
class Expected:
    """The result of one expectation.

    `counts` are of rows, with `error` in place of them if it could not be computed. `values` are some unexpected ones, each
    once, and `observed` is what an expectation about a whole column has measured; both only if they may be shown.
    """

    name: str
    passed: bool
    counts: Mapping[str, int | float | str] = field(default_factory=dict)
    values: tuple[str, ...] = ()
    observed: str | None = None

    @property
    def shortfall(self) -> str:
        """Return what is wrong, in words; empty if nothing is."""
        if self.passed:
            return ""
        if "error" in self.counts:
            return str(self.counts["error"])
        unexpected, every = self.counts.get("unexpected_count"), self.counts.get("element_count")
        if unexpected is None:
            return "it is not met" if self.observed is None else f"it is not met: {self.observed} was observed"
        of_all = "" if every is None else f" of {every:,}"
        shown = f": {', '.join(self.values)}" if self.values else ""
        return counted(int(unexpected), "unexpected value") + of_all + shown


def evaluate(
    frame: DataFrame | pd.DataFrame, name: str, checks: Sequence[Expectation], shown: Shown = NOTHING_SHOWN
) -> list[Expected]:
    """Evaluate the expectations on a DataFrame, by the engine whose frame it is.

    Raises ConfigError for an expectation that Great Expectations does not know or whose arguments it refuses.
    """
    with _great_expectations():
        suite_result = _suite_result(frame, name, checks)
    # Match results by the name in their meta: their order differs.
    by_check = {_check_of(result): result for result in suite_result.results}
    return [_expected(each.name, by_check[each.name], is_shown=shown.allows(each)) for each in checks]


def _check_of(result: Any) -> str:
    return str(((result.expectation_config and result.expectation_config.meta) or {})["check"])


@contextmanager
def _great_expectations() -> Iterator[None]:
    """Allow importing and calling Great Expectations in the block, which sends nothing."""
    # Set before the import, which reads it once: otherwise Great Expectations sends usage data to its makers.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    with warnings.catch_warnings(), _main_module_with_file():
        # Its import and its engines raise deprecation warnings that we can't fix.
        warnings.simplefilter("ignore")
        yield


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


def _suite_result(frame: DataFrame | pd.DataFrame, name: str, checks: Sequence[Expectation]) -> Any:
    import great_expectations as gx
    import pandas as pd
    from great_expectations.exceptions.exceptions import GreatExpectationsError
    from pydantic.v1 import ValidationError

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}  # type: ignore[assignment]  # a dict is what its setter takes
    sources = context.data_sources
    engine = sources.add_pandas(name="lake") if isinstance(frame, pd.DataFrame) else sources.add_spark(name="lake")
    asset = engine.add_dataframe_asset(name=name)
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    entries = [{"type": e.type, "kwargs": dict(e.kwargs), "meta": {"check": e.name}} for e in checks]
    try:
        suite = gx.ExpectationSuite(name=name, expectations=entries)
    except (GreatExpectationsError, ValidationError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"expectations of {name}", reason, "correct them in the configuration") from None
    return batch.validate(suite, result_format="SUMMARY")


def _expected(name: str, result: Any, *, is_shown: bool) -> Expected:
    """Return of a result what may be shown, and the first few values."""
    given = result.result
    # The engine's message may quote a row.
    counts: dict[str, int | float | str] = {"error": _NOT_COMPUTED} if _is_raised(result) else {}
    counts |= {key: given[key] for key in _COUNTS if isinstance(given.get(key), int | float)}
    observed = given.get("observed_value")
    # Of what is not shown: how many rows, or columns, a table has.
    if observed is not None and not is_shown and (_has_column(result) or not isinstance(observed, int)):
        observed = None
    values = _different(given.get("partial_unexpected_list") or ()) if is_shown else ()
    return Expected(name, bool(result.success), counts, tuple(values), None if observed is None else _text(observed))


def _has_column(result: Any) -> bool:
    kwargs = result.expectation_config.kwargs
    return any(name in kwargs for name in (*COLUMN_ARGUMENTS, "column_list"))


def _is_raised(result: Any) -> bool:
    """True if an expectation could not be computed; its information is about itself, or about each of its metrics."""
    information = result.exception_info or {}
    every = [information, *(each for each in information.values() if isinstance(each, dict))]
    return any(each.get("raised_exception") for each in every)


def _different(values: Sequence[Any]) -> list[str]:
    """Return the first few different values as short texts."""
    return list(dict.fromkeys(map(_text, values)))[:VALUES_MAX]


def _text(value: Any) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= VALUE_TEXT_MAX else text[:VALUE_TEXT_MAX] + "…"
