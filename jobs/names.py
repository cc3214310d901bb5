"""The names of the jobs, and the tags by which sensors recognize their runs."""

from __future__ import annotations

from enum import Enum

import lakeproof
from lakeproof.config.model import SourceConfig

# On every run that a sensor keeps going, of a drain or a compaction: it leaves runs alone that a person has started.
SENSOR_TAG = "lakeproof/kept_by_sensor"

VIEWS_REFRESH = "views_refresh"
VIEWS_REPLACE = "views_replace"
VIEWS_TAKE_BACK = "views_take_back"


class SourceJob(str, Enum):
    """A job that each source has; the sources of a group have one compaction, by the group's name."""

    BOOTSTRAP = "bootstrap"
    DRAIN = "drain"
    COMPACTION = "compaction"
    MAINTENANCE = "maintenance"
    SLOT = "slot"
    VERIFICATION = "verification"
    DAILY = "daily"
    REBUILD = "rebuild"
    RECOVER = "recover"
    TEARDOWN = "teardown"
    PAUSE = "pause"
    RESUME = "resume"

    def of(self, name: str) -> str:
        """Return `<source or group>_<job>`."""
        return f"{name}_{self.value}"


def run_tags(kind: str, **more: str) -> dict[str, str]:
    """Return the tags of every run of a job: its kind, the version, and `source` and `slot`, if it has them."""
    tags = {"job": kind, "version": lakeproof.__version__, **more}
    return {f"lakeproof/{name}": value for name, value in tags.items()}


def source_tags(kind: SourceJob, source: SourceConfig) -> dict[str, str]:
    """Return the tags of every run of a source's job."""
    return run_tags(kind.value, source=source.name, slot=source.slot)
