"""A configuration with some of its sources alone, for a location that shows no others.

What is shown of them does not belong here (`build.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from lakeproof.config.model import Config
from lakeproof.config.view_graph import sources_of
from lakeproof.errors import ConfigError


def narrowed(config: Config, names: Sequence[str]) -> Config:
    """Return the configuration with these sources, and with the views and groups that have no other.

    Raises ConfigError for a name that is no source, and for a group of which only a part is named: it is compacted as one.
    """
    sources = {name: config.source(name) for name in names}
    for group, members in config.groups.items():
        if not set(members) <= sources.keys() and not sources.keys().isdisjoint(members):
            missing = ", ".join(sorted(set(members) - sources.keys()))
            raise ConfigError(
                f"group {group}", f"only a part of it is named, without {missing}", "name all of its sources"
            )
    groups = {group: members for group, members in config.groups.items() if set(members) <= sources.keys()}
    views = {name: view for name, view in config.views.items() if set(sources_of(config.views, name)) <= sources.keys()}
    return config.model_copy(update={"sources": sources, "views": views, "groups": groups})
