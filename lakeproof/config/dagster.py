"""The section `dagster`: how a location presents itself and starts.

What runs, and when, does not belong here: the sections of sources have that.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lakeproof.config.section import Model
from lakeproof.config.values import Text


class DagsterConfig(Model):
    """How the Dagster location presents itself and starts."""

    start: Literal["running", "stopped"] = Field(
        "running",
        description="Sensors and schedules are on (`running`) or off (`stopped`) until somebody switches them in the UI; the"
        " environment variable LAKEPROOF_START says the same for one process.",
    )
    docs: Text | None = Field(
        None, pattern=r"^https?://", description="A page about this lake, linked from every asset: a runbook, a wiki."
    )
