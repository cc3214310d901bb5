"""The sections that only Dagster reads: how a location starts, and how old its assets may be.

Schedules are in the sections of sources, notifications in `alerts.py`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lakeproof.config.section import Model
from lakeproof.config.values import Seconds, Text


class DagsterConfig(Model):
    """How the Dagster location presents itself and starts."""

    start: Literal["running", "stopped"] = "running"
    """Sensors and schedules are on (`running`) or off (`stopped`) until somebody switches them in the UI; the
    environment variable LAKEPROOF_START says the same for one process."""
    views: Literal["schedule", "condition"] = "schedule"
    """Views that no continuous compaction refreshes: `schedule` looks at the lake and refreshes all of them in one run;
    `condition` gives each an automation condition, and refreshes those whose tables Dagster saw change."""
    keep_runs_s: Seconds = Field(604_800, ge=0)
    """For so long, in seconds, ended runs of drains and continuous compactions that a sensor has started are kept, with
    their events and output; a run with the newest event of an asset stays. 0: all are kept."""
    docs: Text | None = Field(None, pattern=r"^https?://")
    """A page about this lake, linked from every asset: a runbook, a wiki."""


_YEAR_S = 31_536_000


class FreshnessConfig(Model):
    """The age at which the newest event of an asset is too old: a Dagster freshness policy; half of it is a warning."""

    changes_s: Seconds | None = Field(None, ge=0, le=_YEAR_S)
    """Of `changes`, in seconds; none: 3 hours. A table without changes has an event too, while the drain keeps up. 0:
    it may be of any age."""
    current_s: Seconds | None = Field(None, ge=0, le=_YEAR_S)
    """Of `current`; none: 3 hours if the compaction is continuous, else it may be of any age, since a run that has
    nothing to do is not started. 0: it may be of any age."""
    proof_s: Seconds | None = Field(None, ge=0, le=_YEAR_S)
    """Of the proof of `current`; none: 26 hours if `proof_interval` is `hourly`, 3 days if it is `daily`. Large tables
    take turns (`proof_rows`), and may need more. 0: it may be of any age."""
