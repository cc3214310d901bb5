"""The section `spark`: where tasks run, the driver's heap, and further settings.

Starting a session does not belong here (`lakeproof.lake.spark`).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator

from lakeproof.config.secret import EnvSecret, FileSecret, Secret
from lakeproof.config.section import Model
from lakeproof.config.values import Text, number_text, valid_master, valid_memory, valid_spark_conf


def _secret(value: object) -> Secret | None:
    if value is None or isinstance(value, EnvSecret | FileSecret):
        return value
    raise ValueError("must be {env: NAME} or {file: PATH}; secrets do not stand in this file")


class SparkConfig(Model):
    """The Spark session."""

    master: Annotated[Text, Field(min_length=1), AfterValidator(valid_master)] = Field(
        "local[*]",
        description="The master's URL: `local[*]`, or that of a [cluster](cluster.md): `spark://…`, `k8s://…`, `yarn`.",
    )
    secret: Annotated[Secret | None, PlainValidator(_secret)] = Field(
        None,
        description="What the processes of a standalone cluster prove to each other that they know: `{env: NAME}` or"
        " `{file: PATH}`.",
    )
    driver_memory: Annotated[Text, AfterValidator(valid_memory)] = Field("2g", description="The driver's heap.")
    idle_s: float = Field(
        300.0,
        ge=0,
        description="A compaction that goes on ends Spark's process once no table or view has needed it for so many seconds,"
        " and starts another one when one does.",
    )
    conf: Annotated[dict[str, Annotated[str, BeforeValidator(number_text)]], AfterValidator(valid_spark_conf)] = Field(
        default_factory=dict, description="Further settings of Spark's, `spark.…: value`."
    )

    @property
    def secret_variables(self) -> frozenset[str]:
        """The environment variable that holds the secret, if one does."""
        return frozenset([self.secret.variable]) if isinstance(self.secret, EnvSecret) else frozenset()


def is_local(master: str | None) -> bool:
    """True if all tasks run in the driver's own process."""
    return master is not None and (master == "local" or master.startswith("local["))
