"""A resource without configuration: in the launchpad nobody can name another lake.

The resources themselves do not belong here.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc
from typing import cast

import dagster as dg

from resources.lake_spark import LakeSpark
from resources.settings import Settings


def fixed(resource: Settings | LakeSpark) -> dg.ResourceDefinition:
    """Return the resource on its own configuration file; a run that gives it any configuration is refused."""
    kind = type(resource)
    # Dagster's type has functions of configured resources alone in mind, which take nothing.
    start = cast("Callable[[dg.InitResourceContext], object]", resource.get_resource_definition().resource_fn)

    def make(context: dg.InitResourceContext) -> object:
        return start(context)

    # The UI shows this as the resource's type.
    make.__name__, make.__module__ = kind.__name__, kind.__module__
    return dg.ResourceDefinition(make, config_schema={}, description=cleandoc(kind.__doc__ or ""))
