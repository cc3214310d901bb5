"""The section `compute`: where the Spark work of Dagster's runs is done.

Starting it there does not belong here (`resources.compute`). On the command line, Spark is always in the command's process.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from lakeproof.config.section import Model
from lakeproof.config.values import Seconds, Text

ARGUMENTS = "{arguments}"
_Word = Annotated[Text, Field(min_length=1)]


class ComputeConfig(Model):
    """A place for compaction, refresh, proofs, expectations and maintenance, outside of Dagster's process."""

    command: tuple[_Word, ...] = Field(
        min_length=1,
        description="The command that runs `lakeproof` there; the words of what is to be done are added at its end, or"
        " stand in place of `{arguments}`, quoted for a shell.",
    )
    config: Text | None = Field(
        None, description="The path of `lakeproof.yaml` there; none: the path that it has for Dagster."
    )
    stop_s: Seconds = Field(
        60.0,
        ge=0,
        le=86400,
        description="The command is asked to end at its next safe point if its run is ended; after so many seconds more it"
        " gets SIGTERM.",
    )

    @model_validator(mode="after")
    def _arguments_once(self) -> ComputeConfig:
        if sum(word.count(ARGUMENTS) for word in self.command) > 1:
            raise ValueError(f"has {ARGUMENTS} twice in its command")
        return self
