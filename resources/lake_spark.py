"""The Spark session of one run: started by the first asset that needs it, stopped when the run ends.

The session's settings do not belong here: `lakeproof.lake.spark.session` takes them from the configuration.
"""

from pathlib import Path
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from lakeproof.lake.spark.session import session, stop_session


class LakeSpark(LazyPySparkResource):
    """dagster-pyspark's lazy resource with the engine's session in it.

    The stock resource never stops its session, so the next run in the same process would silently reuse the first run's
    master, memory and jars; and it has no setting for the Delta jars.
    """

    spark_config: dict[str, Any] = {}  # noqa: RUF012  (a pydantic field; the configuration file has the settings)
    config_path: str

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = session(Path(self.config_path), "lakeproof dagster")

    @property
    def session(self) -> SparkSession:
        """Return the running session; the first call starts the JVM (seconds)."""
        session: SparkSession = self.spark_session
        return session

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Stop the JVM's session, if one was started."""
        del context
        if self._spark_session is not None:
            stop_session(self._spark_session)
            self._spark_session = None
