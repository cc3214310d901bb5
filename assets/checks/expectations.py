"""Runs the Great Expectations suites of the configuration, as checks on an asset of their own.

Opening a table does not belong here (`lakeproof.lake.read.open`). `dagster-ge` needs a Great Expectations below 1.0, so
version 1 is called directly; importing it takes seconds, so it is imported only when a check runs.
"""

import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.support import metadata as md
from assets.support.engine_call import run_engine
from assets.support.keys import Layer, table_key
from assets.support.specs import LayerTable, table_spec
from lakeproof.config.model import Config, SourceConfig
from lakeproof.errors import ConfigError
from lakeproof.lake.read.open import OpenedLake, open_lake
from lakeproof.lake.spark.session import driver_lives
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.storage.paths import LakePaths
from resources import LakeSpark, Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NOT_IN_NAMES = re.compile(r"\W+", re.ASCII)
# A result may show only counts. Everything else contains values of rows.
_COUNTS = ("element_count", "unexpected_count", "unexpected_percent", "missing_count", "missing_percent")


@dataclass(frozen=True, slots=True)
class Expectation:
    """One entry of `expectations` in the configuration, under the name of its check."""

    name: str
    type: str
    kwargs: Mapping[str, Any]
    severity: dg.AssetCheckSeverity


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
        result.append(Expectation(name, str(entry["type"]), kwargs, _severity(entry.get("severity", "error"))))
    return result


def _severity(text: object) -> dg.AssetCheckSeverity:
    warns = str(text).lower() in ("warn", "warning", "info")
    return dg.AssetCheckSeverity.WARN if warns else dg.AssetCheckSeverity.ERROR


def expectation_keys(source: SourceConfig) -> dict[dg.AssetKey, TableName]:
    """Return `expectations/<source>/<schema>/<table>` for each table that has expectations."""
    return {
        table_key(Layer.EXPECTATIONS, source.name, table): table
        for table in source.tables
        if expectations(source, table)
    }


def expectations_asset(config: Config, source: SourceConfig) -> dg.AssetsDefinition | None:
    """Return the asset for all expectations of one source's current tables, None if the configuration has none.

    The checks are not on `current` itself: Dagster shows a result only until the asset is materialized again, and compaction
    does that soon.
    """
    keys = expectation_keys(source)
    if not keys:
        return None

    @dg.multi_asset(
        name=f"expect_{source.name}",
        specs=[_spec(config, source, table) for table in keys.values()],
        check_specs=[
            dg.AssetCheckSpec(each.name, asset=key, description=_description(each))
            for key, table in keys.items()
            for each in expectations(source, table)
        ],
        can_subset=True,
    )
    def evaluated(
        context: dg.AssetExecutionContext, settings: Settings, lake_spark: LakeSpark
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        assets, checks = context.selected_asset_keys, context.selected_asset_check_keys
        opened = run_engine(lambda _stop: open_lake(lake_spark.session, settings.config()))
        for key, table in keys.items():
            selected = [each for each in expectations(source, table) if dg.AssetCheckKey(key, each.name) in checks]
            if not selected:
                continue
            results = run_engine(lambda _stop, k=key, t=table, s=selected: _check_table(opened, source.name, k, t, s))  # type: ignore[misc]  # defaults bind the loop's values
            if key in assets:
                yield _materialization(key, opened.position(source.name), results)
            yield from results

    return evaluated


def _spec(config: Config, source: SourceConfig, table: TableName) -> dg.AssetSpec:
    return table_spec(
        config,
        LayerTable(source, table, Layer.EXPECTATIONS, LakePaths(source.name).current(table)),
        deps=[table_key(Layer.CURRENT, source.name, table)],
        kinds={"greatexpectations", "spark"},
        description=f"The results of the last evaluation of the expectations of {table}, at the newest cut.",
    )


def _materialization(
    key: dg.AssetKey, position: Lsn, results: Sequence[dg.AssetCheckResult]
) -> dg.MaterializeResult[None]:
    failed = [each.check_name for each in results if not each.passed]
    return dg.MaterializeResult(
        asset_key=key,
        data_version=md.data_version(position),
        metadata=md.merged(
            md.lsns(checked_at_lsn=position),
            {"evaluated": len(results), "failed": len(failed)},
            md.optional(failed_checks=", ".join(map(str, failed)) or None),
        ),
    )


def _description(expectation: Expectation) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in expectation.kwargs.items())
    return f"{expectation.type}({arguments}), at the newest cut"


def _check_table(
    opened: OpenedLake, source: str, key: dg.AssetKey, table: TableName, selected: Sequence[Expectation]
) -> list[dg.AssetCheckResult]:
    frame = opened.table(source, str(table))
    position = opened.position(source)
    with driver_lives(frame.sparkSession):
        results = validate(frame, str(table), selected)
    return [
        dg.AssetCheckResult(
            asset_key=key,
            check_name=each.name,
            passed=bool(result["success"]),
            severity=each.severity,
            metadata=md.merged(md.lsns(checked_at_lsn=position), result["metadata"]),
        )
        for each, result in zip(selected, results, strict=True)
    ]


def validate(frame: "DataFrame", name: str, selected: Sequence[Expectation]) -> list[dict[str, Any]]:
    """Run the expectations on a DataFrame; return `success` and `metadata` without row values for each, in order.

    Raises ConfigError for an expectation that Great Expectations does not know or whose arguments it refuses.
    """
    # Set before the import, which reads it once: otherwise Great Expectations sends usage data to its makers.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    with warnings.catch_warnings(), _main_module_with_file():
        # Its import and its use of Spark raise deprecation warnings that we can't fix.
        warnings.simplefilter("ignore")
        results = _results(frame, name, selected)
    # Match results by the name in their meta: their order differs.
    by_check: dict[str, Any] = {}
    for result in results:
        meta = (result.expectation_config and result.expectation_config.meta) or {}
        by_check[meta["check"]] = result
    return [{"success": by_check[e.name].success, "metadata": _counts(by_check[e.name])} for e in selected]


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


def _results(frame: "DataFrame", name: str, selected: Sequence[Expectation]) -> Sequence[Any]:
    import great_expectations as gx
    from great_expectations.exceptions.exceptions import GreatExpectationsError
    from pydantic.v1 import ValidationError

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}  # type: ignore[assignment]  # a dict is what its setter takes
    asset = context.data_sources.add_spark(name="lake").add_dataframe_asset(name=name)
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    entries = [{"type": e.type, "kwargs": dict(e.kwargs), "meta": {"check": e.name}} for e in selected]
    try:
        suite = gx.ExpectationSuite(name=name, expectations=entries)
    except (GreatExpectationsError, ValidationError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"expectations of {name}", reason, "correct them in the configuration") from None
    return batch.validate(suite, result_format="SUMMARY").results


def _counts(result: Any) -> md.Metadata:
    counts = {k: result.result[k] for k in _COUNTS if isinstance(result.result.get(k), int | float)}
    if (result.exception_info or {}).get("raised_exception"):
        # Spark's message may quote a row.
        counts["error"] = "it could not be computed; check that the column exists and that its type fits"
    return counts
