"""Great Expectations suites from the configuration, as checks on an asset of their own: what was found when they were run.

How a table is opened belongs to `lakeproof.lake.read.open`; what is expected, to the configuration. `dagster-ge` needs
a Great Expectations below 1.0, so version 1 is called here; its import takes seconds and starts in the body alone.
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
from assets.support.engine_call import call
from assets.support.keys import Layer, table_key
from assets.support.specs import table_spec
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

_ODD = re.compile(r"\W+", re.ASCII)
# What a result may show of a table: counts. The others are values of its rows.
_COUNTS = ("element_count", "unexpected_count", "unexpected_percent", "missing_count", "missing_percent")


@dataclass(frozen=True, slots=True)
class Expectation:
    """One entry of `expectations` in the configuration, under the name of its check."""

    name: str
    type: str
    kwargs: Mapping[str, Any]
    severity: dg.AssetCheckSeverity


def expectations(source: SourceConfig, table: TableName) -> list[Expectation]:
    """The configured expectations of a table, each with a name of its own: what is expected, and of which columns."""
    found: list[Expectation] = []
    names: set[str] = set()
    for entry in source.table_config(table).expectations:
        kwargs = dict(entry.get("kwargs", {}))
        columns = [str(kwargs[key]) for key in ("column", "column_A", "column_B") if key in kwargs]
        columns += [str(name) for name in kwargs.get("column_list", ())]
        base = _ODD.sub("_", "__".join([str(entry["type"]), *columns])).strip("_")
        name, number = base, 1
        while name in names:
            number += 1
            name = f"{base}_{number}"
        names.add(name)
        found.append(Expectation(name, str(entry["type"]), kwargs, _severity(entry.get("severity", "error"))))
    return found


def _severity(text: object) -> dg.AssetCheckSeverity:
    warns = str(text).lower() in ("warn", "warning", "info")
    return dg.AssetCheckSeverity.WARN if warns else dg.AssetCheckSeverity.ERROR


def expectation_keys(source: SourceConfig) -> dict[dg.AssetKey, TableName]:
    """`expectations/<source>/<schema>/<table>` of each table that has some."""
    return {
        table_key(Layer.EXPECTATIONS, source.name, table): table
        for table in source.tables
        if expectations(source, table)
    }


def expectations_asset(config: Config, source: SourceConfig) -> dg.AssetsDefinition | None:
    """All expectations of one source's current tables, None where the configuration has none.

    Not on `current` itself: Dagster shows a check until its asset is materialized again, and compaction does that at once.
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
    def expected(
        context: dg.AssetExecutionContext, settings: Settings, lake_spark: LakeSpark
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        assets, checks = context.selected_asset_keys, context.selected_asset_check_keys
        opened = call(lambda _stop: open_lake(lake_spark.session, settings.config()))
        for key, table in keys.items():
            wanted = [each for each in expectations(source, table) if dg.AssetCheckKey(key, each.name) in checks]
            if not wanted:
                continue
            results = call(lambda _stop, k=key, t=table, w=wanted: _check_table(opened, source.name, k, t, w))  # type: ignore[misc]  # defaults bind the loop's values
            if key in assets:
                yield _materialization(key, opened.position(source.name), results)
            yield from results

    return expected


def _spec(config: Config, source: SourceConfig, table: TableName) -> dg.AssetSpec:
    return table_spec(
        config,
        source,
        table,
        Layer.EXPECTATIONS,
        deps=[table_key(Layer.CURRENT, source.name, table)],
        place=LakePaths(config.lake, source.name).current(table),
        kinds={"greatexpectations", "spark"},
        description=f"What was found when the expectations of {table} were evaluated last, at the newest cut.",
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
            md.known(failed_checks=", ".join(map(str, failed)) or None),
        ),
    )


def _description(expectation: Expectation) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in expectation.kwargs.items())
    return f"{expectation.type}({arguments}), at the newest cut"


def _check_table(
    opened: OpenedLake, source: str, key: dg.AssetKey, table: TableName, wanted: Sequence[Expectation]
) -> list[dg.AssetCheckResult]:
    frame = opened.table(source, str(table))
    position = opened.position(source)
    with driver_lives(frame.sparkSession):
        results = validate(frame, str(table), wanted)
    return [
        dg.AssetCheckResult(
            asset_key=key,
            check_name=each.name,
            passed=bool(result["success"]),
            severity=each.severity,
            metadata=md.merged(md.lsns(checked_at_lsn=position), result["metadata"]),
        )
        for each, result in zip(wanted, results, strict=True)
    ]


def validate(frame: "DataFrame", name: str, wanted: Sequence[Expectation]) -> list[dict[str, Any]]:
    """Run the expectations over a DataFrame; gives `success` and value-free `metadata` for each, in order.

    Raises ConfigError for an expectation that Great Expectations does not know or whose arguments it refuses.
    """
    # Before the import, which reads it once: it would otherwise talk to a server of its makers.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    with warnings.catch_warnings(), _main_module_with_file():
        # Its import and its use of Spark meet deprecations that are not ours to see to.
        warnings.simplefilter("ignore")
        results = _results(frame, name, wanted)
    # Found by the name in their meta: results come in an order of their own.
    by_check: dict[str, Any] = {}
    for result in results:
        meta = (result.expectation_config and result.expectation_config.meta) or {}
        by_check[meta["check"]] = result
    return [{"success": by_check[e.name].success, "metadata": _counts(by_check[e.name])} for e in wanted]


@contextmanager
def _main_module_with_file() -> Iterator[None]:
    """Give `__main__` a `__file__` for a while, if it has none, as in the processes that Dagster spawns for runs.

    PySpark takes such a process for a doctest when Great Expectations imports it, and ends it with status 0. The name
    goes again: multiprocessing would run that file in this process's own children.
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


def _results(frame: "DataFrame", name: str, wanted: Sequence[Expectation]) -> Sequence[Any]:
    import great_expectations as gx
    from great_expectations.exceptions.exceptions import GreatExpectationsError
    from pydantic.v1 import ValidationError

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}  # type: ignore[assignment]  # a dict is what its setter takes
    asset = context.data_sources.add_spark(name="lake").add_dataframe_asset(name=name)
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    entries = [{"type": e.type, "kwargs": dict(e.kwargs), "meta": {"check": e.name}} for e in wanted]
    try:
        suite = gx.ExpectationSuite(name=name, expectations=entries)
    except (GreatExpectationsError, ValidationError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"expectations of {name}", reason, "correct them in the configuration") from None
    return batch.validate(suite, result_format="SUMMARY").results


def _counts(result: Any) -> md.Metadata:
    found = {k: result.result[k] for k in _COUNTS if isinstance(result.result.get(k), int | float)}
    if (result.exception_info or {}).get("raised_exception"):
        # Spark's own words may quote a row.
        found["error"] = "it could not be computed: is there such a column, and of a type that fits?"
    return found
