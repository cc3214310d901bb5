"""Decides if sensors and schedules are on when nobody has switched them: by the configuration, or by the environment.

Switching them in the UI does not belong here: Dagster keeps that, and it wins.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import dagster as dg

from lakeproof.config.model import Config
from lakeproof.errors import ConfigError

VARIABLE = "LAKEPROOF_START"
_WORDS = ("running", "stopped")


@dataclass(frozen=True, slots=True)
class Start:
    """The default status of everything that starts runs."""

    is_running: bool = True

    @property
    def sensor(self) -> dg.DefaultSensorStatus:
        """The default status of a sensor."""
        return dg.DefaultSensorStatus.RUNNING if self.is_running else dg.DefaultSensorStatus.STOPPED

    @property
    def schedule(self) -> dg.DefaultScheduleStatus:
        """The default status of a schedule."""
        return dg.DefaultScheduleStatus.RUNNING if self.is_running else dg.DefaultScheduleStatus.STOPPED


RUNNING = Start()


def start_of(config: Config, environ: Mapping[str, str] = os.environ) -> Start:
    """Return the default of a configuration; the environment's comes first. Raises ConfigError for any other word."""
    word = environ.get(VARIABLE) or config.dagster.start
    if word not in _WORDS:
        raise ConfigError(
            f"the environment variable {VARIABLE}", f"it is {word[:40]!r}", f"set it to {' or '.join(_WORDS)}"
        )
    return Start(word == "running")
