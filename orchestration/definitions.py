"""The location that `workspace.yaml` names: the configuration at hand, assembled.

Everything that could be tested or reused belongs to `build` and `locate`; Dagster loads this file by its path.
"""

from __future__ import annotations

from orchestration.build import location
from orchestration.find_config import configuration_path

defs = location(configuration_path())
