"""The views as they are applied: the configuration with the definitions that the lake has, and the order of a refresh."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lakeproof.config.model import Config, ViewConfig
from lakeproof.config.view_graph import with_inputs
from lakeproof.errors import ConfigError, LakeError
from lakeproof.lake.records.views.cuts import ViewCut, newest_first
from lakeproof.lake.records.views.definitions import read_definition, with_definition
from lakeproof.storage.store import Store


@dataclass(frozen=True, slots=True)
class AppliedViews:
    """`config` has each view by its applied definition, `newest` each view's newest cut.

    `faults`: what is wrong with a view's documents, or with what it reads; the other views are no matter of it.
    """

    config: Config
    newest: dict[str, ViewCut]
    faults: dict[str, LakeError | ConfigError] = field(default_factory=dict)

    @classmethod
    def read(cls, config: Config, store: Store) -> AppliedViews:
        """Read the newest cut and the applied definition of every view that is configured."""
        newest: dict[str, ViewCut] = {}
        faults: dict[str, LakeError | ConfigError] = {}
        try:
            for cut in newest_first(store):
                if cut.view in config.views:
                    newest.setdefault(cut.view, cut)
                if len(newest) == len(config.views):
                    break
        except LakeError as error:
            faults = dict.fromkeys(config.views.keys() - newest.keys(), error)
        views: dict[str, ViewConfig] = {}
        for name, view in config.views.items():
            views[name] = view
            try:
                if name in newest:
                    definition = read_definition(store, name, newest[name].definition_sha256)
                    views[name] = with_definition(view, definition)
            except LakeError as error:
                faults[name] = error
        return cls(config.model_copy(update={"views": views}), newest, faults)

    def in_order(self, names: Iterable[str]) -> dict[str, set[str]]:
        """Return these views and those that they read, in the order of a refresh, each with the views that it waits for.

        A view with a circle below it, or that reads what is no view, becomes one of `faults`.
        """
        order: dict[str, set[str]] = {}
        for name in names:
            try:
                inputs = with_inputs(self.config.views, [name])
            except ConfigError as error:
                self.faults.setdefault(name, error)
                order.setdefault(name, set())
                continue
            for other in inputs:
                order.setdefault(other, set(self.config.views[other].views.values()))
        return order
