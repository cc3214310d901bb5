"""The location that `workspace.yaml` names: the configuration that `location` finds; in a run, what its job needs.

Dagster loads this file by its path; everything that could be tested or reused belongs to `location`.
"""

from __future__ import annotations

from orchestration.location import configuration_path, location, own_job

defs = location(configuration_path(), own_job())
