"""Proofs as assets: `proof/<key>` is the result of the last proof of the asset `<key>`, and carries the check.

Comparing does not belong here (`lakeproof.commands.prove`), nor interpreting the result (`outcomes`). Differing keys stay in
the engine's report: they are values of rows.

Dagster shows the result of a check until its asset is materialized again. So an asset and its proof are two assets, and only
a comparison materializes a proof (docs/decisions/0044-dagsters-half-for-others.md).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import dagster as dg
from pydantic import Field

from assets.catalog import Catalog
from assets.checks.outcomes import UNREACHED, ProofOutcome, history_outcome, table_outcome, view_outcome
from assets.support import metadata as md
from assets.support.engine_call import run_command, table_words
from assets.support.keys import SPARK_POOL, Layer, proof_key, table_key
from assets.support.step import StepRun, asset_step
from lakeproof.cli.results import from_json
from lakeproof.config.model import Config, SourceConfig, ViewConfig
from lakeproof.config.view_graph import sources_of
from lakeproof.names import TableName
from lakeproof.proof.record import ProofRecord, read_record
from lakeproof.proof.result import ProofReport
from lakeproof.state import due as state_due
from lakeproof.storage.paths import LakePaths
from resources import Compute, Settings

CHECK = "proved_equal"
HISTORY_CHECK = "proved_intact"


class ProofRun(dg.Config):
    """Options of a proof."""

    repair: bool = Field(
        default=False,
        description="correct what differs from the source in the selected tables, then compare them once more",
    )


@dataclass(frozen=True, slots=True)
class ProofTargets:
    """Everything of one source that is proved, or the part that one run proves, by the keys of the proof assets."""

    tables: Mapping[dg.AssetKey, TableName]
    histories: Mapping[dg.AssetKey, TableName]
    views: Mapping[dg.AssetKey, str]

    @property
    def keys(self) -> list[dg.AssetKey]:
        """Return the key of each target."""
        return [*self.tables, *self.histories, *self.views]

    @property
    def checks(self) -> list[dg.AssetCheckKey]:
        """Return the key of each target's check."""
        equal = [dg.AssetCheckKey(key, CHECK) for key in (*self.tables, *self.views)]
        return [*equal, *(dg.AssetCheckKey(key, HISTORY_CHECK) for key in self.histories)]


def proof_targets(config: Config, source: SourceConfig) -> ProofTargets:
    """Return a source's targets: the configured tables, their histories, and the views that its proofs cover."""
    return ProofTargets(
        {proof_key(table_key(Layer.CURRENT, source.name, table)): table for table in source.tables},
        {proof_key(table_key(Layer.HISTORY, source.name, table)): table for table in source.tables},
        {proof_key(Layer.VIEWS.key(view.name)): view.name for view in _views(config, source)},
    )


def _subset(targets: ProofTargets, keys: Collection[dg.AssetKey]) -> ProofTargets:
    return ProofTargets(
        {key: table for key, table in targets.tables.items() if key in keys},
        {key: table for key, table in targets.histories.items() if key in keys},
        {key: view for key, view in targets.views.items() if key in keys},
    )


def due_proofs(config: Config, source: SourceConfig, settings: Settings) -> list[dg.AssetKey]:
    """Return the keys of the proofs whose turn it is; connects to no server."""
    targets = proof_targets(config, source)
    due = state_due.due_proofs(settings.config(), source.name, list(targets.views.values()))
    tables = [key for key, table in targets.tables.items() if table in due.tables]
    histories = [key for key, table in targets.histories.items() if table in due.histories]
    return [*tables, *histories, *(key for key, view in targets.views.items() if view in due.views)]


def _views(config: Config, source: SourceConfig) -> list[ViewConfig]:
    """Return the views that a source's proofs cover: a view of several sources belongs to the first by name with tables."""

    def prover(view: ViewConfig) -> str | None:
        return next((name for name in sources_of(config.views, view.name) if config.sources[name].tables), None)

    return [view for view in config.views.values() if prover(view) == source.name]


def proof_asset(catalog: Catalog, source: SourceConfig) -> dg.AssetsDefinition:
    """Return the proofs of one source: one run makes all selected proofs, those of tables under one snapshot."""
    targets = proof_targets(catalog.config, source)
    # One of the tables, which are compacted together, and every view.
    first = [next(iter(targets.tables)), *targets.views]

    @asset_step(
        f"prove_{source.name}",
        _specs(catalog, source, targets),
        # In a process that runs everything it comes after what it has no input of.
        StepRun(can_subset=True, pool=SPARK_POOL, tags={"dagster/priority": "-5"}),
        after=[dg.AssetKey(key.path[1:]) for key in first],
        checks=[
            dg.AssetCheckSpec(check.name, asset=check.asset_key, description=_description(targets, check.asset_key))
            for check in targets.checks
        ],
    )
    def proof(
        context: dg.AssetExecutionContext, config: ProofRun, settings: Settings, compute: Compute
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        assets, checks = context.selected_asset_keys, context.selected_asset_check_keys
        selected = _subset(targets, {*assets, *(check.asset_key for check in checks)})
        proofs, failed = ProofReport(source.name, None, {}), None
        try:
            done = run_command(context, compute, *_words(source.name, selected, config))
            proofs = from_json(ProofReport, done, _parts())
        except dg.Failure as failure:
            # The run fails, but only after each check has reported that nothing was compared, with its earlier result.
            failed = failure
        outcomes = _verdicts(selected, proofs, read_record(settings.lake_of(source.name)), failed)
        for check in selected.checks:
            outcome = outcomes[check.asset_key]
            if outcome.compared and check.asset_key in assets:
                yield md.result(proof_event(check.asset_key, outcome))
            if check in checks:
                yield proof_check_result(check, outcome)
        if failed is not None:
            raise failed

    return proof


def _specs(catalog: Catalog, source: SourceConfig, targets: ProofTargets) -> list[dg.AssetSpec]:
    place = {"dagster/uri": catalog.uri(LakePaths(source.name).proof_record), "source": source.name}
    kinds = {key: {"spark", "postgres"} if key in targets.tables else {"spark"} for key in targets.keys}
    return [
        catalog.spec(key, _description(targets, key), kinds[key], [dg.AssetKey(key.path[1:])], metadata=place)
        for key in targets.keys
    ]


def _parts() -> Mapping[str, type]:
    """Return the types of a report that its module imports for the type checker alone."""
    from lakeproof.proof.compare import DifferingKey
    from lakeproof.proof.lake.history import HistoryProof
    from lakeproof.views.audit import ViewProof

    return {kind.__name__: kind for kind in (DifferingKey, HistoryProof, ViewProof)}


def _words(name: str, selected: ProofTargets, run: ProofRun) -> list[str]:
    """Return the command that makes the selected proofs and no other."""
    views = ",".join(selected.views.values())
    return [
        "prove",
        name,
        *table_words("--tables", selected.tables.values()),
        *table_words("--histories", selected.histories.values()),
        # An empty list, too: without it, the histories and views whose turn it is would be proved.
        f"--views={views}",
        # Histories and views have no other side to be repaired from.
        *(["--repair"] if run.repair and selected.tables else []),
    ]


def _verdicts(
    selected: ProofTargets, proofs: ProofReport, last: ProofRecord, failed: dg.Failure | None
) -> dict[dg.AssetKey, ProofOutcome]:
    why, of = UNREACHED if failed is None else failed.description or UNREACHED, last.tables
    return {
        **{key: table_outcome(table, proofs, of.get(table), why) for key, table in selected.tables.items()},
        **{key: history_outcome(table, proofs, of.get(table), why) for key, table in selected.histories.items()},
        **{key: view_outcome(view, proofs, last.views.get(view), why) for key, view in selected.views.items()},
    }


def proof_event(key: dg.AssetKey, outcome: ProofOutcome) -> dg.AssetMaterialization:
    """Return the event of a comparison."""
    return md.event(key, outcome.metadata, outcome.position, outcome.reason)


def evaluation(result: dg.AssetCheckResult) -> dg.AssetCheckEvaluation:
    """Return a check's result as an event that needs no run."""
    if result.asset_key is None or result.check_name is None:
        raise ValueError("the result names no check")
    return dg.AssetCheckEvaluation(
        asset_key=result.asset_key,
        check_name=result.check_name,
        passed=result.passed,
        metadata=result.metadata,
        severity=result.severity,
        description=result.description,
    )


def proof_check_result(check: dg.AssetCheckKey, outcome: ProofOutcome) -> dg.AssetCheckResult:
    """Return the check's result: green is equal, red differs, yellow means that nothing was compared."""
    return dg.AssetCheckResult(
        asset_key=check.asset_key,
        check_name=check.name,
        passed=outcome.status == "equal",
        severity=dg.AssetCheckSeverity.ERROR if outcome.wrong else dg.AssetCheckSeverity.WARN,
        description=outcome.reason,
        metadata=outcome.metadata,
    )


def _description(targets: ProofTargets, key: dg.AssetKey) -> str:
    if key in targets.tables:
        return _CURRENT
    return _HISTORY if key in targets.histories else _VIEW


_COLOURS = (
    "Severity ERROR: it differs, or differed when it was last compared. WARN: nothing was compared, for the reason "
    "given."
)
_CURRENT = f"Every row of the source's table, compared with the lake's by checksums at one LSN. {_COLOURS}"
_HISTORY = (
    "The files of history have the rows that cycles wrote, according to their running checksum, and add up to current. "
    f"Histories take turns, within `proof_rows`. {_COLOURS}"
)
_VIEW = f"The view has the rows that its query returns at the view's cuts. {_COLOURS}"
