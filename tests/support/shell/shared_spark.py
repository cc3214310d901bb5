"""The location's resource with the Spark session that all tests of a process share.

Not for anything but tests: in Dagster each run has its own session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resources import Compute
from resources.run_session import RunSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakeproof.lake.spark_on_demand import SparkOnDemand


class SharedSpark(Compute):
    """The location's resource, but with the session that all tests of this process share."""

    @property
    def on_demand(self) -> SparkOnDemand:
        """Return the shared session, which nobody stops."""
        return RunSession(config_path=self.config_path).on_demand

    @property
    def session(self) -> SparkSession:
        """Return the shared session, started."""
        session: SparkSession = RunSession(config_path=self.config_path).spark_session
        return session
