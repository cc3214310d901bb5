"""The resource that assets ask for Spark work: the words of a `lakeproof` command in, its result out.

Where the work is done does not change what an asset sees: both ways give the document that the command prints with `--json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from lakeproof.cli.arguments import function_of, parser
from lakeproof.cli.context import Context
from lakeproof.cli.interruption import Interruption
from lakeproof.cli.results import to_json
from lakeproof.config.load import load
from lakeproof.events import RunControl
from resources.compute.session import run_elsewhere
from resources.lake_spark import LakeSpark

if TYPE_CHECKING:
    from lakeproof.lake.spark_on_demand import SparkOnDemand


@dataclass(frozen=True)
class _HereContext(Context):
    """The context of a command in this process, which uses the run's session."""

    lake_spark: LakeSpark

    @contextmanager
    def spark_on_demand(self) -> Iterator[SparkOnDemand]:
        yield self.lake_spark.on_demand


class Compute(LakeSpark):
    """Runs commands that need Spark where `compute` of the configuration says, else with a session of the run's own.

    That session is dagster-pyspark's, lazily: its JVM starts with the first table that needs it, and ends with the run.
    """

    def run(
        self, context: dg.AssetExecutionContext | dg.OpExecutionContext, words: Sequence[str], control: RunControl
    ) -> Any:
        """Return the result of a command as JSON has it; raises the command's error."""
        config = load(Path(self.config_path), set_views_aside=True)
        if config.compute is not None:
            return run_elsewhere(context, config, config.compute, words, control)
        args = parser().parse_args(["--config", self.config_path, *words])
        here = _HereContext(
            args.command, args.config, True, control.report, control.stop, Interruption(control.stop), lake_spark=self
        )
        return to_json(function_of(args.command)(here, args).document)
