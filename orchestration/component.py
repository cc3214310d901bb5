"""The sources of a configuration as a Dagster component: a few lines of YAML in anybody's project, scaffolded by `dg`.

The parts of a location are in `build.py`. A wheel has this as `lakeproof_dagster.SourceComponent`.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import dagster as dg
from pydantic import BaseModel, Field

from lakeproof.config.load import DEFAULT_NAME, load
from orchestration.build import build

_LOG = logging.getLogger(__name__)


class SourceScaffold(BaseModel):
    """The options of `dg scaffold defs`."""

    config: str = Field(default=DEFAULT_NAME, description="The configuration, relative to the component's folder.")
    sources: str = Field(
        default="", description="Names of sources, separated by commas; none: all of the configuration."
    )


class SourceScaffolder(dg.Scaffolder[SourceScaffold]):
    """Writes the YAML of a component."""

    @classmethod
    def get_scaffold_params(cls) -> type[SourceScaffold]:
        return SourceScaffold

    def scaffold(self, request: dg.ScaffoldRequest[SourceScaffold]) -> None:
        attributes: dict[str, object] = {"config": request.params.config}
        if request.params.sources:
            attributes["sources"] = [name.strip() for name in request.params.sources.split(",")]
        dg.scaffold_component(request, attributes)


@dg.scaffold_with(SourceScaffolder)
class SourceComponent(dg.Component, dg.Model, dg.Resolvable):
    """PostgreSQL sources in a Delta lake: changes, history, current tables, views, proofs, and what keeps them going."""

    config: Annotated[str, Field(description="The lakeproof.yaml, relative to this component's folder.")]
    sources: Annotated[list[str] | None, Field(description="The sources to show; none: all of the configuration.")] = (
        None
    )

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        return dg.ComponentTypeSpec(
            description="PostgreSQL replicated to Delta Lake by lakeproof, as its configuration says.",
            tags=["postgres", "deltalake", "cdc"],
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        return self.definitions(context.path)

    def definitions(self, folder: Path, job: str | None = None) -> dg.Definitions:
        """Return the assets, jobs, sensors and schedules, or what a run of `job` needs; relative paths begin at `folder`.

        Raises ConfigError, with every mistake, for a configuration that is wrong or missing, or has no such source.
        """
        config = load((folder / self.config).absolute(), set_views_aside=True)
        for name, fault in config.faulty_views.items():
            # Everything else of the location goes on; `lakeproof status` and `check` have it, too.
            _LOG.warning("without view %s: %s", name, fault)
        return build(config, self.sources, job)
