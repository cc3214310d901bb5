"""A resource without configuration: in the launchpad nobody can name another lake.

The resources themselves do not belong here.
"""

from __future__ import annotations

import dagster as dg

from resources.lake_spark import LakeSpark
from resources.settings import Settings


def fixed(resource: Settings | LakeSpark) -> dg.ResourceDefinition:
    """Return the resource on its own configuration file; a run that gives it any configuration is refused."""
    path = resource.config_path
    return resource.get_resource_definition().configured(lambda _config: {"config_path": path}, config_schema={})
