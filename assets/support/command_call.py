"""Runs a `lakeproof` command for an asset, wherever the configuration says, and logs its events in the run.

The place does not belong here (`resources.compute`), nor what an asset makes of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import dagster as dg

from assets.support.engine_call import run_engine_in_turn
from assets.support.event_log import to_run_log
from lakeproof.config.table_names import write_table
from lakeproof.events import RunControl, Stop
from lakeproof.names import TableName
from resources import Compute


def run_command(
    context: dg.AssetExecutionContext | dg.OpExecutionContext,
    compute: Compute,
    *words: str,
    achieved: Callable[[], str] | None = None,
) -> Any:
    """Return the result of a command, as it prints it with `--json`; raises as `run_engine_in_turn` does."""
    report = to_run_log(context.log.info)

    def command(stop: Stop) -> Any:
        return compute.run(context, words, RunControl(report, stop))

    return run_engine_in_turn(command, context.retry_number, achieved)


def table_words(option: str, tables: Iterable[TableName]) -> list[str]:
    """Return an option with a list of tables as a command takes it; nothing without a table."""
    listed = ",".join(map(write_table, tables))
    return [option, listed] if listed else []
