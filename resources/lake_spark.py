"""The Spark session of one run: started by the first asset that asks, stopped when the run ends.

What the session is set to belongs to `lakeproof.lake.spark.session` and the configuration's `spark` section.
"""

from pathlib import Path
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from lakeproof.lake.spark.session import session, stop_session


class LakeSpark(LazyPySparkResource):
    """dagster-pyspark's lazy resource with the engine's session in it.

    The stock resource never stops its session, so the next run in the same process would silently get the first
    one's master, memory and jars; and it has no place for the Delta jars.
    """

    spark_config: dict[str, Any] = {}  # noqa: RUF012  (a pydantic field; the configuration file says it all)
    config_path: str

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = session(Path(self.config_path), "lakeproof dagster")

    @property
    def session(self) -> SparkSession:
        """The running session; the first call starts the JVM (seconds)."""
        session: SparkSession = self.spark_session
        return session

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Stop the JVM's session, where one was started."""
        del context
        if self._spark_session is not None:
            stop_session(self._spark_session)
            self._spark_session = None
