"""The resource that assets ask for work that may need Spark: the words of a `lakeproof` command in, its result out.

Where the work is done does not change what an asset sees: in this process or elsewhere, it is the document that the command
prints with `--json`. Why it is a command: docs/decisions/0044-dagsters-half-for-others.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import PrivateAttr
from typing_extensions import Self

from lakeproof.cli.arguments import function_of, parser
from lakeproof.cli.context import Context
from lakeproof.cli.interruption import Interruption
from lakeproof.cli.results import to_json
from lakeproof.config.load import load
from lakeproof.errors import ConfigError
from lakeproof.events import RunControl
from resources.elsewhere import run_elsewhere

if TYPE_CHECKING:
    from lakeproof.lake.spark_on_demand import SparkOnDemand


@dataclass(frozen=True)
class _HereContext(Context):
    """The context of a command in this process, which uses the run's session."""

    compute: Compute

    @contextmanager
    def spark_on_demand(self) -> Iterator[SparkOnDemand]:
        yield self.compute.on_demand


class Compute(dg.ConfigurableResource["Compute"]):
    """Runs commands that may need Spark where `compute` of the configuration says, else with the run's `pyspark`.

    That session is dagster-pyspark's, lazily: its JVM starts with the first table or view that needs it. It ends with the
    run, or earlier if a run that goes on gives it back.
    """

    config_path: str
    _session: Any = PrivateAttr(default=None)

    def with_session(self, session: object) -> Self:
        """Return this resource with the run's `resources.run_session.RunSession`, whose end is its owner's."""
        self._session = session
        return self

    @property
    def on_demand(self) -> SparkOnDemand:
        """Return the run's session for work that may need none: it starts when the first table needs it."""
        if self._session is None:
            reason = "the configuration had it when this location was loaded, so this run has no Spark session"
            raise ConfigError("compute", reason, "reload this location, then launch the run again")
        on_demand: SparkOnDemand = self._session.on_demand
        return on_demand

    def run(
        self, context: dg.AssetExecutionContext | dg.OpExecutionContext, words: Sequence[str], control: RunControl
    ) -> Any:
        """Return the result of a command as JSON has it; raises the command's error."""
        config = load(Path(self.config_path), set_views_aside=True)
        if config.compute is not None:
            return run_elsewhere(context, config, config.compute, words, control)
        args = parser().parse_args(["--config", self.config_path, *words])
        here = _HereContext(
            args.command, args.config, True, control.report, control.stop, Interruption(control.stop), compute=self
        )
        return to_json(function_of(args.command)(here, args).document)
