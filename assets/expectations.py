"""Great Expectations suites from the configuration, as asset checks on the current tables.

How a table is opened belongs to `wal2delta.lake.open`; what is expected, to the configuration. `dagster-ge` needs a Great
Expectations below 1.0, so version 1 is called here; its import takes seconds and starts in the body alone.
"""

import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets import metadata as md
from assets.keys import Layer, table_key
from assets.stopping import call
from resources import LakeSpark, Settings
from wal2delta.config.model import SourceConfig
from wal2delta.errors import ConfigError
from wal2delta.lake.open import OpenedLake, open_lake
from wal2delta.names import TableName

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


def expectations_check(source: SourceConfig) -> dg.AssetChecksDefinition | None:
    """All expectations on one source's current tables, None where the configuration has none."""
    suites = {table: found for table in source.tables if (found := expectations(source, table))}
    if not suites:
        return None

    @dg.multi_asset_check(
        name=f"expect_{source.name}",
        specs=[
            dg.AssetCheckSpec(
                each.name, asset=table_key(Layer.CURRENT, source.name, table), description=_description(each)
            )
            for table, found in suites.items()
            for each in found
        ],
        can_subset=True,
    )
    def check(
        context: dg.AssetCheckExecutionContext, settings: Settings, lake_spark: LakeSpark
    ) -> Iterator[dg.AssetCheckResult]:
        chosen = context.selected_asset_check_keys
        opened = call(lambda _stop: open_lake(lake_spark.session, settings.config()))
        for table, found in suites.items():
            key = table_key(Layer.CURRENT, source.name, table)
            wanted = [each for each in found if dg.AssetCheckKey(key, each.name) in chosen]
            if wanted:
                yield from call(lambda _stop, t=table, w=wanted: _check_table(opened, source.name, t, w))  # type: ignore[misc]  # defaults bind the loop's values

    return check


def _description(expectation: Expectation) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in expectation.kwargs.items())
    return f"{expectation.type}({arguments}), at the newest cut"


def _check_table(
    opened: OpenedLake, source: str, table: TableName, wanted: Sequence[Expectation]
) -> list[dg.AssetCheckResult]:
    frame = opened.table(source, str(table))
    position = opened.position(source)
    results = validate(frame, str(table), wanted)
    return [
        dg.AssetCheckResult(
            asset_key=table_key(Layer.CURRENT, source, table),
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
    with warnings.catch_warnings():
        # Its import and its use of Spark meet deprecations that are not ours to see to.
        warnings.simplefilter("ignore")
        results = _results(frame, name, wanted)
    # Found by the name in their meta: results come in an order of their own.
    by_check: dict[str, Any] = {}
    for result in results:
        meta = (result.expectation_config and result.expectation_config.meta) or {}
        by_check[meta["check"]] = result
    return [{"success": by_check[e.name].success, "metadata": _counts(by_check[e.name])} for e in wanted]


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
