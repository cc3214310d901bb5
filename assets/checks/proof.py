"""Proofs as assets: `proof/<key>` is what was found when the asset `<key>` was proved last, and has the check on it.

Comparing belongs to `lakeproof.commands.prove`, what is made of it to `verdicts`. Differing keys stay in the engine's
report: they are values of rows.

Dagster shows the result of a check until its asset is materialized again. So what is proved and its proof are two assets,
and nothing but a comparison materializes a proof (docs/decisions/0027-proofs-have-assets.md).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import dagster as dg
from pyspark.sql import SparkSession

from assets.checks.verdicts import UNREACHED, Verdict, of_history, of_table, of_view
from assets.support import metadata as md
from assets.support.engine_call import call_in_turn
from assets.support.event_log import to_run_log
from assets.support.keys import Layer, proof_key, table_key, view_key
from lakeproof.commands.prove import prove
from lakeproof.commands.prove_lake import LakePart, prove_in_lake
from lakeproof.config.model import Config, SourceConfig, ViewConfig
from lakeproof.events import Report, Stop
from lakeproof.names import TableName
from lakeproof.proof.result import ProofReport
from lakeproof.storage.paths import LakePaths
from resources import LakeSpark, LastProofs, Settings

CHECK = "proved_equal"
HISTORY_CHECK = "proved_whole"


@dataclass(frozen=True, slots=True)
class Things:
    """What is proved of one source, or what one run of it proves, by the keys of the proofs."""

    tables: Mapping[dg.AssetKey, TableName]
    histories: Mapping[dg.AssetKey, TableName]
    views: Mapping[dg.AssetKey, str]

    @property
    def checks(self) -> list[dg.AssetCheckKey]:
        """The check of each."""
        equal = [dg.AssetCheckKey(key, CHECK) for key in (*self.tables, *self.views)]
        return [*equal, *(dg.AssetCheckKey(key, HISTORY_CHECK) for key in self.histories)]


def things(config: Config, source: SourceConfig) -> Things:
    """What is proved of a source: the configured tables, their histories, and the views whose proofs it makes."""
    return Things(
        {proof_key(table_key(Layer.CURRENT, source.name, table)): table for table in source.tables},
        {proof_key(table_key(Layer.HISTORY, source.name, table)): table for table in source.tables},
        {proof_key(view_key(view.name)): view.name for view in _views(config, source)},
    )


def _only(every: Things, keys: Collection[dg.AssetKey]) -> Things:
    return Things(
        {key: table for key, table in every.tables.items() if key in keys},
        {key: table for key, table in every.histories.items() if key in keys},
        {key: view for key, view in every.views.items() if key in keys},
    )


def due_proofs(config: Config, source: SourceConfig, settings: Settings) -> list[dg.AssetKey]:
    """The proofs whose turn it is."""
    every = things(config, source)
    due = settings.due_for_proof(source.name, list(every.views.values()))
    tables = [key for key, table in every.tables.items() if table in due.tables]
    histories = [key for key, table in every.histories.items() if table in due.histories]
    return [*tables, *histories, *(key for key, view in every.views.items() if view in due.views)]


def _views(config: Config, source: SourceConfig) -> list[ViewConfig]:
    """The views that a source's proofs audit: of several sources that a view reads, the first by name that lists tables."""

    def prover(view: ViewConfig) -> str | None:
        return min((name for name, _ in view.reads.values() if config.sources[name].tables), default=None)

    return [view for view in config.views.values() if prover(view) == source.name]


def proof_asset(config: Config, source: SourceConfig) -> dg.AssetsDefinition:
    """The proofs of one source: whichever are selected are made in one run, those of tables under one snapshot."""
    every = things(config, source)

    @dg.multi_asset(
        name=f"prove_{source.name}",
        specs=list(_specs(config, source, every)),
        check_specs=[
            dg.AssetCheckSpec(check.name, asset=check.asset_key, description=_description(every, check.asset_key))
            for check in every.checks
        ],
        can_subset=True,
    )
    def proof(
        context: dg.AssetExecutionContext, settings: Settings, lake_spark: LakeSpark
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        assets, checks = context.selected_asset_keys, context.selected_asset_check_keys
        chosen = _only(every, {*assets, *(check.asset_key for check in checks)})
        report = to_run_log(context.log.info)
        found, failed = ProofReport(source.name, None, {}), None
        try:
            found = call_in_turn(
                lambda stop: _prove(settings.config(), source.name, chosen, lake_spark.session, report, stop),
                context.retry_number,
            )
        except dg.Failure as failure:
            # The run fails, but only after each check has said that nothing was compared, and what was found before.
            failed = failure
        verdicts = _verdicts(chosen, found, settings.last_proofs(source.name), failed)
        for check in chosen.checks:
            verdict = verdicts[check.asset_key]
            if verdict.compared and check.asset_key in assets:
                yield _materialization(check.asset_key, verdict)
            if check in checks:
                yield result(check, verdict)
        if failed is not None:
            raise failed

    return proof


def _prove(  # noqa: PLR0917  the engine's own order
    config: Config, name: str, chosen: Things, spark: SparkSession, report: Report, stop: Stop
) -> ProofReport:
    part = LakePart(list(chosen.histories.values()), list(chosen.views.values()))
    if chosen.tables:
        return prove(config, name, list(chosen.tables.values()), spark, report, stop, part=part)
    return ProofReport(name, None, {}, prove_in_lake(config, name, part, spark, report, stop))


def _verdicts(
    chosen: Things, found: ProofReport, last: LastProofs, failed: dg.Failure | None
) -> dict[dg.AssetKey, Verdict]:
    why = UNREACHED if failed is None else failed.description or UNREACHED
    return {
        **{key: of_table(table, found, last.tables.get(table), why) for key, table in chosen.tables.items()},
        **{key: of_history(table, found, last.tables.get(table), why) for key, table in chosen.histories.items()},
        **{key: of_view(view, found, last.views.get(view), why) for key, view in chosen.views.items()},
    }


def _materialization(key: dg.AssetKey, verdict: Verdict) -> dg.MaterializeResult[None]:
    version = None if verdict.position is None else md.data_version(verdict.position)
    return dg.MaterializeResult(asset_key=key, metadata=verdict.metadata, data_version=version)


def result(check: dg.AssetCheckKey, verdict: Verdict) -> dg.AssetCheckResult:
    """What the UI shows of one proof: green is equal, red differs, yellow says nothing of either."""
    return dg.AssetCheckResult(
        asset_key=check.asset_key,
        check_name=check.name,
        passed=verdict.status == "equal",
        severity=dg.AssetCheckSeverity.ERROR if verdict.wrong else dg.AssetCheckSeverity.WARN,
        description=verdict.reason,
        metadata=verdict.metadata,
    )


def _specs(config: Config, source: SourceConfig, every: Things) -> Iterator[dg.AssetSpec]:
    place = LakePaths(config.lake, source.name)
    owners = {key: source.table_config(t).owners for key, t in {**every.tables, **every.histories}.items()}
    owners |= {key: config.views[view].owners for key, view in every.views.items()}
    for key in (*every.tables, *every.histories, *every.views):
        yield dg.AssetSpec(
            key=key,
            deps=[dg.AssetKey(key.path[1:])],
            group_name=Layer.PROOF.value,
            description=_description(every, key),
            kinds={"spark", "postgres"} if key in every.tables else {"spark"},
            owners=list(owners[key]),
            skippable=True,
            metadata={
                "dagster/table_name": f"{Layer.PROOF.value}.{'.'.join(key.path[1:])}",
                "dagster/uri": place.url(place.proved),
                "source": source.name,
            },
        )


def _description(every: Things, key: dg.AssetKey) -> str:
    if key in every.tables:
        return _CURRENT
    return _HISTORY if key in every.histories else _VIEW


_COLOURS = (
    "A check of severity ERROR: it differs, or did so when it was compared last. WARN: nothing was compared, the reason "
    "says why."
)
_CURRENT = f"Every row of the source's table and of the lake's, compared by checksums at one LSN. {_COLOURS}"
_HISTORY = (
    "The files of history have the rows that cycles wrote, by their running checksum, and add up to current; "
    f"each history has its turn, within `proof_rows`. {_COLOURS}"
)
_VIEW = f"The view's rows are what its query gives at the cuts that the view stands at. {_COLOURS}"
