"""Decides if sensors and schedules are on when nobody has switched them in the UI, which wins."""

from __future__ import annotations

import os
from collections.abc import Mapping

from lakeproof.config.model import Config
from lakeproof.errors import ConfigError

VARIABLE = "LAKEPROOF_START"
RUNNING = "RUNNING"


def start_of(config: Config, environ: Mapping[str, str] = os.environ) -> str:
    """Return Dagster's name of the default status; the environment's comes first. Raises ConfigError for any other word."""
    word = environ.get(VARIABLE) or config.dagster.start
    if word not in {"running", "stopped"}:
        raise ConfigError(
            f"the environment variable {VARIABLE}", f"it is {word[:40]!r}", "set it to running or stopped"
        )
    return word.upper()
