"""The sections `spark` and `compute`: the Spark session, and where the Spark work of Dagster's runs is done.

Starting a session does not belong here (`lakeproof.lake.spark`), nor starting the work at another place
(`resources.compute`). On the command line, Spark is always in the command's process.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from lakeproof.config.secret import EnvSecret, Secret
from lakeproof.config.section import Model
from lakeproof.config.values import Seconds, Text, number_text, valid_master, valid_memory, valid_spark_conf


class SparkConfig(Model):
    """The Spark session."""

    master: Annotated[Text, Field(min_length=1), AfterValidator(valid_master)] = "local[*]"
    """The master's URL: `local[*]`, or that of a [cluster](cluster.md): `spark://…`, `k8s://…`, `yarn`."""
    secret: Secret | None = None
    """What the processes of a standalone cluster prove to each other that they know: `{env: NAME}` or `{file: PATH}`."""
    driver_memory: Annotated[Text, AfterValidator(valid_memory)] = "2g"
    """The driver's heap."""
    idle_s: float = Field(300.0, ge=0)
    """A compaction that goes on ends Spark's process once no table or view has needed it for so many seconds, and
    starts another one when one does."""
    conf: Annotated[dict[str, Annotated[str, BeforeValidator(number_text)]], AfterValidator(valid_spark_conf)] = Field(
        default_factory=dict
    )
    """Further settings of Spark's, `spark.…: value`."""

    @property
    def secret_variables(self) -> frozenset[str]:
        """The environment variable that holds the secret, if one does."""
        return frozenset([self.secret.variable]) if isinstance(self.secret, EnvSecret) else frozenset()


def is_local(master: str | None) -> bool:
    """True if all tasks run in the driver's own process."""
    return master is not None and (master == "local" or master.startswith("local["))


ARGUMENTS = "{arguments}"
_Word = Annotated[Text, Field(min_length=1)]


class ComputeConfig(Model):
    """A place for compaction, refresh, proofs, expectations and maintenance, outside of Dagster's process."""

    command: tuple[_Word, ...] = Field(min_length=1)
    """The command that runs `lakeproof` there; the words of what is to be done are added at its end, or stand in place
    of `{arguments}`, quoted for a shell."""
    config: Text | None = None
    """The path of `lakeproof.yaml` there; none: the path that it has for Dagster."""
    stop_s: Seconds = Field(60.0, ge=0, le=86400)
    """The command is asked to end at its next safe point if its run is ended; after so many seconds more it gets
    SIGTERM."""

    @model_validator(mode="after")
    def _arguments_once(self) -> ComputeConfig:
        if sum(word.count(ARGUMENTS) for word in self.command) > 1:
            raise ValueError(f"has {ARGUMENTS} twice in its command")
        return self
