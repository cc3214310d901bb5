"""Runs the location's own jobs in this process, so that Dagster has a record of every step and Spark starts only once.

The order of the jobs does not belong here (`demo.steps`), nor their work (`assets`, `lakeproof.commands`).

A run that Dagster's daemon launches is a process that imports Dagster and Spark and may start a JVM: five of them are more
than a minute of nothing. The drain alone is a run in its own process, since it works while the others do. Once the web
server and the daemon have started, everything is as in a deployment.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from assets.checks.proof import proof_targets
from assets.support.keys import Layer, table_key
from demo.state import DemoError
from lakeproof.config.load import load
from lakeproof.names import TableName
from orchestration.build import build
from resources import Compute
from resources.run_session import RunSession

# The UI lists a run among those of its job by this tag, which Dagster adds only to what its own processes launch.
LISTED = {".dagster/repository": "__repository__@lakeproof"}


@dataclass(frozen=True, slots=True)
class TableRow:
    """One line of the result: the proof of one table."""

    table: TableName
    source_rows: int | None
    lake_rows: int | None
    position: str | None
    status: str


class Runs:
    """The jobs of the configuration at `path`, run against the Dagster instance that DAGSTER_HOME names."""

    def __init__(self, path: Path) -> None:
        # Otherwise Dagster writes every event of an in-process run to stderr; the UI shows them all.
        logging.getLogger("dagster").setLevel(logging.CRITICAL)
        self.config = load(path)
        self._definitions = build(self.config)
        self._instance = dg.DagsterInstance.get()
        # A session that outlives a run: five starts would cost more than the work. As it is: Dagster makes a copy of a
        # resource for each run, and a copy has a session of its own.
        self._session = RunSession(config_path=str(path))
        self._compute = dg.ResourceDefinition.hardcoded_resource(
            Compute(config_path=str(path)).with_session(self._session)
        )

    def start_spark(self) -> None:
        """Start the session that all runs share."""
        self._session.spark_session.range(1).count()

    def run(self, job: str, assets: Sequence[dg.AssetKey] | None = None) -> dg.ExecuteInProcessResult:
        """Run `job`, or some of its assets, to its end; raises DemoError with the one line of a failed step.

        Dagster takes no other resource for a part of a job. Its own gets the session that runs in this process, and ends it
        with the run: so parts come last.
        """
        definition = self._definitions.resolve_job_def(job)
        shared = assets is None and "compute" in definition.required_resource_keys
        try:
            return definition.execute_in_process(
                run_config=dg.RunConfig(loggers={"console": {"config": {"log_level": "CRITICAL"}}}),
                instance=self._instance,
                asset_selection=assets,
                tags=LISTED,
                resources={"compute": self._compute} if shared else None,
            )
        except dg.Failure as failure:
            raise DemoError(f"{job}: {failure.description}") from failure

    def metadata(self, result: dg.ExecuteInProcessResult, layer: Layer) -> dict[TableName, Mapping[str, object]]:
        """Return the metadata that a run reported for the tables of one layer, by table."""
        by_table: dict[TableName, Mapping[str, object]] = {}
        keys = {table_key(layer, s.name, table): table for s in self.config.sources.values() for table in s.tables}
        for event in result.get_asset_materialization_events():
            materialization = event.step_materialization_data.materialization
            if materialization.asset_key in keys:
                by_table[keys[materialization.asset_key]] = _values(materialization.metadata)
        return by_table

    def prove(self, source: str) -> list[TableRow]:
        """Prove every table of `source`, and its history; return each table's result, which may be `not proved`."""
        targets = proof_targets(self.config, self.config.sources[source])
        evaluated = self._checked(f"{source}_verification", [*targets.tables, *targets.histories])
        return [_row(table, evaluated.get(key, {})) for key, table in targets.tables.items()]

    def audit(self, source: str) -> None:
        """Compare the views that read `source` with their queries; raises DemoError if one is not equal."""
        targets = proof_targets(self.config, self.config.sources[source])
        evaluated = self._checked(f"{source}_verification", list(targets.views))
        for key, view in targets.views.items():
            values = evaluated.get(key, {})
            if values.get("status") != "equal":
                raise DemoError(f"view {view}: {values.get('reason') or 'it was not compared'}")

    def _checked(self, job: str, assets: Sequence[dg.AssetKey]) -> dict[dg.AssetKey, dict[str, object]]:
        evaluations = self.run(job, assets).get_asset_check_evaluations()
        return {check.asset_key: _values(check.metadata) for check in evaluations}


def _values(metadata: Mapping[str, dg.MetadataValue[Any]]) -> dict[str, object]:
    return {name: value.value for name, value in metadata.items()}


def _row(table: TableName, metadata: Mapping[str, object]) -> TableRow:
    source_rows, lake_rows = metadata.get("source_rows"), metadata.get("lake_rows")
    position = metadata.get("compared_at_lsn")
    return TableRow(
        table=table,
        source_rows=source_rows if isinstance(source_rows, int) else None,
        lake_rows=lake_rows if isinstance(lake_rows, int) else None,
        position=position if isinstance(position, str) else None,
        status=str(metadata.get("status", "not proved")),
    )
