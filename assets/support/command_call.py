"""Runs a `lakeproof` command for an asset, wherever the configuration says, and logs its events in the run.

`resources.compute` has the place of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from assets.support.engine_call import run_engine, run_engine_in_turn
from assets.support.event_log import to_run_log
from lakeproof.config.table_names import table_text
from lakeproof.events import Event, Report, RunControl, Stop, silent
from lakeproof.names import TableName
from resources import Compute


def run_command(
    context: dg.AssetExecutionContext | dg.OpExecutionContext,
    compute: Compute,
    *words: str,
    achieved: Callable[[], str] | None = None,
) -> Any:
    """Return the result of a command, as it prints it with `--json`; raises as `run_engine_in_turn` does."""
    return run_engine_in_turn(_command(context, compute, words), context.retry_number, achieved)


@dataclass(frozen=True, slots=True)
class Lasting:
    """The work beside a command: `hear` gets each event, from any thread, `meanwhile` runs in the thread of the run.

    `achieved` is the run's last word if a person ends it.
    """

    hear: Report
    meanwhile: Callable[[], None]
    achieved: Callable[[], str]


def run_lasting_command(
    context: dg.AssetExecutionContext, compute: Compute, words: Sequence[str], beside: Lasting
) -> None:
    """Run a command that ends by its own time; raises as `run_engine` does: a sensor starts the next run."""
    run_engine(_command(context, compute, words, beside.hear), beside.meanwhile, beside.achieved)


def _command(
    context: dg.AssetExecutionContext | dg.OpExecutionContext,
    compute: Compute,
    words: Sequence[str],
    hear: Report = silent,
) -> Callable[[Stop], Any]:
    log = to_run_log(context.log.info)

    def report(event: Event) -> None:
        hear(event)
        log(event)

    return lambda stop: compute.run(context, words, RunControl(report, stop))


def table_words(option: str, tables: Iterable[TableName]) -> list[str]:
    """Return an option with a list of tables as a command takes it; nothing without a table."""
    listed = ",".join(map(table_text, tables))
    return [option, listed] if listed else []
