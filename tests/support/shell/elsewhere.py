"""Configurations whose Spark work is done by a command of this interpreter, and what Dagster knows after a run.

Tests do not belong here.
"""

import json
import sys
from pathlib import Path
from typing import Any

import dagster as dg

from assets.support.engine_call import run_command
from resources import Compute

HERE = json.dumps([sys.executable, "-m", "lakeproof"])


def result_of(config: Path, *words: str) -> Any:
    """Return the result of a command as an asset gets it, with the events that the run's log has of it."""
    lines: list[str] = []

    @dg.asset
    def asking(context: dg.AssetExecutionContext, compute: Compute) -> dg.MaterializeResult[None]:
        result = run_command(context, compute, *words)
        return dg.MaterializeResult(metadata={"result": dg.JsonMetadataValue(result)})

    @dg.logger(config_schema={})
    def to_list(_context: dg.InitLoggerContext) -> Any:
        import logging

        logger = logging.Logger("lines")  # noqa: LOG001  (no other logger may hear of it)
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(record.dagster_meta["orig_message"])  # type: ignore[attr-defined, method-assign]  # Dagster's own attribute
        logger.addHandler(handler)
        return logger

    job = dg.define_asset_job("asking_job", executor_def=dg.in_process_executor)
    defs = dg.Definitions(
        [asking],
        jobs=[job],
        resources={"compute": Compute(config_path=str(config))},
        loggers={"console": to_list},
    )
    with dg.DagsterInstance.ephemeral() as instance:
        done = defs.resolve_job_def("asking_job").execute_in_process(instance=instance)
    (event,) = done.get_asset_materialization_events()
    metadata = event.step_materialization_data.materialization.metadata
    return metadata["result"].value, lines
