"""dagster-pyspark's lazy resource with the engine's session in it; it imports PySpark."""

from pathlib import Path
from typing import Any

from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from lakeproof.config.load import load
from lakeproof.config.section.spark import is_local
from lakeproof.lake.spark.driver import stop_session
from lakeproof.lake.spark.session import end_driver, session
from lakeproof.lake.spark_on_demand import SparkOnDemand


class RunSession(LazyPySparkResource):
    """The session of a run: started by the first table or view that needs it, stopped when the run ends or gives it back.

    The stock resource never stops its session, so the next run in the same process would silently reuse the first run's
    master, memory and jars; and it has no setting for the Delta jars.
    """

    spark_config: dict[str, Any] = {}  # noqa: RUF012  (a pydantic field; the configuration file has the settings)
    config_path: str

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = session(Path(self.config_path), "lakeproof dagster")

    @property
    def on_demand(self) -> SparkOnDemand:
        """Return the same session, for work that may need none; on a cluster every table needs it."""
        is_cluster = not is_local(load(Path(self.config_path)).spark.master)
        return SparkOnDemand(lambda: self.spark_session, everywhere=is_cluster, end=self._give_back)

    def stop(self) -> None:
        """Stop the session, if one was started."""
        if self._spark_session is not None:
            stop_session(self._spark_session)
            self._spark_session = None

    def _give_back(self, started: SparkSession) -> None:
        """End the session and its JVM; whoever asks gets new ones."""
        end_driver(started)
        self._spark_session = None
