"""The Spark session of one run: started by the first asset that needs it, stopped when the run ends.

The session's settings do not belong here: `lakeproof.lake.spark.session` takes them from the configuration. PySpark is
imported with the first session: loading a location and a sensor's tick need none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import PrivateAttr
from typing_extensions import Self

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakeproof.lake.spark_on_demand import SparkOnDemand


class LakeSpark(dg.ConfigurableResource["LakeSpark"]):
    """The run's Spark session, by dagster-pyspark's lazy resource (`run_session.py`)."""

    config_path: str
    _run_session: Any = PrivateAttr(default=None)

    @property
    def session(self) -> SparkSession:
        """Return the running session; the first call starts the JVM (seconds)."""
        from resources.run_session import RunSession

        if self._run_session is None:
            self._run_session = RunSession(config_path=self.config_path)
        session: SparkSession = self._run_session.spark_session
        return session

    @property
    def on_demand(self) -> SparkOnDemand:
        """The same session, for work that may need none: it starts when the first table needs it."""
        from resources.run_session import on_demand

        return on_demand(self.config_path, lambda: self.session, self._give_back)

    def with_session(self, run_session: Any) -> Self:
        """Return this resource, which uses the run's `resources.run_session.RunSession` and leaves its end to its owner."""
        self._run_session = run_session
        return self

    def _give_back(self, session: SparkSession) -> None:
        if self._run_session is not None:
            self._run_session.give_back(session)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Stop the JVM's session, if one was started."""
        del context
        if self._run_session is not None:
            self._run_session.stop()
            self._run_session = None
