"""The Great Expectations suites of the configuration, as checks on an asset of their own.

`dagster-ge` needs a Great Expectations below 1.0, so version 1 is called directly, by `lakeproof.commands.expect`.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import dagster as dg

from assets.catalog import Catalog
from assets.support import metadata as md
from assets.support.engine_call import failure, run_command, table_words
from assets.support.keys import Layer, table_key
from assets.support.step import StepRun, asset_step
from lakeproof.cli.results import from_json
from lakeproof.config.model import SourceConfig
from lakeproof.errors import ConfigError
from lakeproof.expectations.configured import Expectation, expectations
from lakeproof.names import TableName
from resources import Compute

if TYPE_CHECKING:
    from lakeproof.expectations.evaluate import Expected

_SEVERITY = {"error": dg.AssetCheckSeverity.ERROR, "warn": dg.AssetCheckSeverity.WARN}


def expectation_keys(source: SourceConfig) -> dict[dg.AssetKey, TableName]:
    """Return `expectations/<source>/<schema>/<table>` for each table that has expectations."""
    tables = [table for table in source.tables if expectations(source, table)]
    return {table_key(Layer.EXPECTATIONS, source.name, table): table for table in tables}


def expectations_asset(catalog: Catalog, source: SourceConfig) -> dg.AssetsDefinition | None:
    """Return the asset for all expectations of one source's current tables, None if the configuration has none.

    The checks are not on `current` itself: Dagster shows a result only until the asset is materialized again, and compaction
    does that soon.
    """
    keys = expectation_keys(source)
    if not keys:
        return None
    checks = {
        dg.AssetCheckKey(key, each.name): each for key, table in keys.items() for each in expectations(source, table)
    }

    @asset_step(
        f"expect_{source.name}",
        [
            catalog.spec(
                key,
                f"The results of the last evaluation of the expectations of {table}, at the newest cut.",
                {"greatexpectations"},
                [table_key(Layer.CURRENT, source.name, table)],
            )
            for key, table in keys.items()
        ],
        StepRun(can_subset=True),
        # One step makes all current tables.
        after=[table_key(Layer.CURRENT, source.name, table) for table in list(keys.values())[:1]],
        checks=[
            dg.AssetCheckSpec(key.name, asset=key.asset_key, description=_description(each))
            for key, each in checks.items()
        ],
    )
    def expectations_of_tables(
        context: dg.AssetExecutionContext, compute: Compute
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        from lakeproof.commands.expect import ExpectReport

        assets, selected = context.selected_asset_keys, context.selected_asset_check_keys
        tables = {key: table for key, table in keys.items() if any(check.asset_key == key for check in selected)}
        words = table_words("--tables", tables.values())
        report = from_json(ExpectReport, run_command(context, compute, "expect", source.name, *words))
        about = md.lsns(checked_at_lsn=report.position)
        for key, table in tables.items():
            evaluated = {each.name: each for each in report.tables.get(table, ())}
            results = [
                _result(check, each, evaluated, about)
                for check, each in checks.items()
                if check.asset_key == key and check in selected
            ]
            if key in assets:
                failed = [each.check_name for each in results if not each.passed and each.check_name]
                metadata = md.merged(
                    about,
                    {"evaluated": len(results), "failed": len(failed)},
                    md.optional(failed_checks=", ".join(failed) or None),
                )
                yield md.result(md.event(key, metadata, report.position))
            yield from results

    return expectations_of_tables


def _description(expectation: Expectation) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in expectation.kwargs.items())
    return f"{expectation.type}({arguments}), at the newest cut"


def _result(
    check: dg.AssetCheckKey, expectation: Expectation, results: "Mapping[str, Expected]", about: md.Metadata
) -> dg.AssetCheckResult:
    result = results.get(check.name)
    if result is None:
        raise failure(
            ConfigError(
                f"expectation {check.name}",
                "the configuration where it was to be evaluated does not have it",
                "give both places the same configuration, then reload this location",
            )
        )
    shown = md.optional(unexpected_values=list(result.values) or None, observed_value=result.observed)
    return dg.AssetCheckResult(
        asset_key=check.asset_key,
        check_name=check.name,
        passed=result.passed,
        severity=_SEVERITY[expectation.severity],
        description=result.shortfall or None,
        metadata=md.merged(about, result.counts, shown),
    )
