"""The location's resources, without configuration: in the launchpad nobody can name another lake."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache
from inspect import cleandoc
from typing import TYPE_CHECKING

import dagster as dg

from resources.compute import Compute
from resources.settings import Settings

if TYPE_CHECKING:
    from resources.run_session import RunSession


@cache
def location_resources(path: str, *, elsewhere: bool) -> dict[str, dg.ResourceDefinition]:
    """Return the resources of a configuration file; what computes takes `compute`, and that the session of `pyspark`.

    Computing `elsewhere` takes none, so that no run imports PySpark for it. Each component of a file gets the same
    objects, or Dagster would not merge them.
    """

    def compute(context: dg.InitResourceContext) -> Compute:
        here = Compute(config_path=path)
        return here if elsewhere else here.with_session(context.resources.pyspark)

    return {
        "settings": fixed(Settings(config_path=path)),
        "pyspark": _pyspark(path),
        "compute": _shown(compute, Compute, required=set() if elsewhere else {"pyspark"}),
    }


def _pyspark(path: str) -> dg.ResourceDefinition:
    """Return dagster-pyspark's lazy resource; a run imports it, and no location, which has no use for PySpark."""

    @contextmanager
    def make(_context: dg.InitResourceContext) -> Iterator[RunSession]:
        from resources.run_session import RunSession

        session = RunSession(config_path=path)
        try:
            yield session
        finally:
            session.stop()

    # The UI shows this as its type, in this module: Dagster looks for the other, which is not imported.
    make.__name__ = "LazyPySparkResource"
    description = (
        "The run's Spark session, by the configuration's settings; its JVM starts with the first thing that needs it."
    )
    return dg.ResourceDefinition(make, config_schema={}, description=description)


def fixed(resource: Settings | Compute) -> dg.ResourceDefinition:
    """Return the resource on its own configuration file; a run that gives it any configuration is refused."""

    def make(context: dg.InitResourceContext) -> object:
        resource.setup_for_execution(context)
        return resource

    return _shown(make, type(resource))


def _shown(
    make: Callable[[dg.InitResourceContext], object], kind: type, required: Collection[str] = ()
) -> dg.ResourceDefinition:
    """Return a resource that the UI shows with this type, and with its docstring."""
    make.__name__, make.__module__ = kind.__name__, kind.__module__
    return dg.ResourceDefinition(
        make, config_schema={}, description=cleandoc(kind.__doc__ or ""), required_resource_keys=set(required)
    )
