"""The location that `workspace.yaml` names: the configuration that `find_config` finds, assembled.

Dagster loads this file by its path; everything that could be tested or reused belongs to `location` and `find_config`.
"""

from __future__ import annotations

from orchestration.find_config import configuration_path
from orchestration.location import location

defs = location(configuration_path())
