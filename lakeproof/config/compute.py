"""The section `compute`: where the Spark work of Dagster's runs is done.

Starting it there does not belong here (`resources.compute`). On the command line, Spark is always in the command's process.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from lakeproof.config.section import Model
from lakeproof.config.values import Seconds, Text

ARGUMENTS = "{arguments}"
PLACES = ("command", "kubernetes", "emr_serverless", "databricks")
_Word = Annotated[Text, Field(min_length=1)]


class KubernetesConfig(Model):
    """A pod for each command."""

    pod: Text = Field(
        min_length=1,
        description="A file with the pod's manifest, relative to `lakeproof.yaml`; its first container gets the words of"
        " what is to be done as `args`.",
    )
    namespace: Text | None = Field(None, description="The namespace; none: the manifest's, or else `default`.")
    context: Text | None = Field(
        None,
        description="The context of the kubeconfig file; none: the account of Dagster's own pod, or outside of a cluster"
        " the current context.",
    )


class EmrServerlessConfig(Model):
    """A job run of an EMR Serverless application for each command."""

    application: Text = Field(min_length=1, description="The application's id.")
    role: Text = Field(min_length=1, description="The ARN of the role that the job runs as.")
    entry_point: Text = Field(
        min_length=1, description="The URL of lakeproof's `__main__.py`, as the application sees it."
    )
    submit: Text = Field("", description="Parameters of `spark-submit`: the environment with lakeproof, memory, cores.")
    region: Text | None = Field(None, description="AWS's region; none: the environment's, or the profile's.")


class DatabricksConfig(Model):
    """A run of one task for each command."""

    task: Text = Field(
        min_length=1,
        description="A file with the task as Databricks' Jobs API has it, in YAML, relative to `lakeproof.yaml`: the"
        " cluster, the libraries, and a `spark_python_task` or `python_wheel_task`, which gets the words as `parameters`.",
    )
    profile: Text | None = Field(
        None, description="The profile of `.databrickscfg`; none: `DATABRICKS_HOST` and what the environment has."
    )


class ComputeConfig(Model):
    """A place for compaction, refresh, proofs, expectations and maintenance, outside of Dagster's process."""

    command: tuple[_Word, ...] = Field(
        (),
        description="The command that runs `lakeproof` there; the words of what is to be done are added at its end, or"
        " stand in place of `{arguments}`, quoted for a shell.",
    )
    kubernetes: KubernetesConfig | None = Field(
        None, description="A pod for each command. See [compute on Kubernetes](#computekubernetes)."
    )
    emr_serverless: EmrServerlessConfig | None = Field(
        None, description="A job run of EMR Serverless for each command. See [compute on EMR](#computeemr_serverless)."
    )
    databricks: DatabricksConfig | None = Field(
        None, description="A run on Databricks for each command. See [compute on Databricks](#computedatabricks)."
    )
    config: Text | None = Field(
        None, description="The path of `lakeproof.yaml` there; none: the path that it has for Dagster."
    )
    stop_s: Seconds = Field(
        60.0,
        ge=0,
        le=86400,
        description="The command is asked to end at its next safe point if its run is ended; after so many seconds more it"
        " gets SIGTERM, or its pod, job or run is ended.",
    )

    @model_validator(mode="after")
    def _one_place(self) -> ComputeConfig:
        places = [name for name in PLACES if getattr(self, name)]
        if not places:
            raise ValueError("names no place; give it a command, or leave the section out")
        if len(places) > 1:
            raise ValueError(f"names several places: {', '.join(places)}; keep one")
        if sum(word.count(ARGUMENTS) for word in self.command) > 1:
            raise ValueError(f"has {ARGUMENTS} twice in its command")
        return self
