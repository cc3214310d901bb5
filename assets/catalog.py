"""Completes every asset for the catalog: group, tags, owners, columns and where each comes from, comments, the place.

The assets themselves do not belong here: each spec is completed after its family has made it. Everything is read from the
configuration and the lake, when the location is loaded: no server, and no Spark.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

import lakeproof
from assets.support import metadata as md
from assets.support.columns import (
    described_columns,
    lake_column_types,
    stored_view_schema,
    table_columns,
    table_lineage,
    view_lineage,
    view_schema,
)
from assets.support.keys import Layer, group_of, proof_key, table_key, uri, view_key
from assets.support.pace import policy, slot_policy, window_s
from assets.views import read_keys, stored_columns
from lakeproof.config.model import Config, SourceConfig, ViewConfig
from lakeproof.errors import LakeproofError
from lakeproof.expectations.configured import expectations
from lakeproof.lake.records.described import read_described
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.records.store import newest_cut
from lakeproof.names import TableName
from lakeproof.postgres.catalog.descriptions import TableDescription
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake

if TYPE_CHECKING:
    from assets.support.view_lineage import ViewColumn

SOURCE_TAG, LAYER_TAG, SCHEMA_TAG = "lakeproof/source", "lakeproof/layer", "lakeproof/schema"
_TAG_VALUE = re.compile(r"[A-Za-z0-9_.-]{1,63}")
_log = logging.getLogger("lakeproof.dagster")


@dataclass(frozen=True, slots=True)
class _LakeState:
    """The state of a source's tables in the lake: at the newest cut, and their descriptions."""

    tables: Mapping[TableName, CutTable] = field(default_factory=dict)
    descriptions: Mapping[TableName, TableDescription] = field(default_factory=dict)


_OF_NO_SOURCE = frozenset({Layer.VIEWS.value, Layer.EXTERNAL.value})


class Catalog:
    """Completes the specs of one configuration's assets; the lake is read once, when it is made."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lake = {name: _read(config, source) for name, source in config.sources.items() if source.tables}
        self._tables = {
            table_key(layer, source.name, table): (layer, source, table)
            for source in config.sources.values()
            for table in source.tables
            for layer in Layer
            if layer.is_of_tables
        }
        self._views = {view_key(view.name): view for view in config.views.values()}
        self._view_columns: dict[str, dict[str, str]] = {}
        self._of_all = self._documentation()

    def show(self, asset: dg.AssetsDefinition) -> dg.AssetsDefinition:
        """Return the asset with completed specs."""
        return asset.map_asset_specs(self.complete)

    def complete(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        """Return one completed spec."""
        documentation = (
            self._of_all if spec.key not in self._views else self._documentation(self._views[spec.key].sql_file)
        )
        metadata: md.Metadata = {"lakeproof_version": lakeproof.__version__, **documentation}
        description = spec.description
        if spec.key in self._tables:
            metadata |= self._of_table(*self._tables[spec.key])
            description = self._with_comment(spec)
        elif spec.key in self._views:
            metadata |= self._of_view(self._views[spec.key])
        metadata |= self._judged_by(spec.key)
        return spec.replace_attributes(
            group_name=group_of(spec.key),
            description=description,
            freshness_policy=self._freshness(spec.key),
            owners=[*spec.owners] or self._owners(spec.key),
            tags={**spec.tags, **self._tags(spec.key)},
            metadata={**spec.metadata, **metadata},
        )

    def _judged_by(self, key: dg.AssetKey) -> md.Metadata:
        """Return links to the assets on which the checks of an asset stand; the UI shows none of them on its own page."""
        layer, source, table = self._tables.get(key, (None, None, None))
        if layer not in (Layer.CURRENT, Layer.HISTORY) and key not in self._views:
            return {}
        links = {"proof": proof_key(key)}
        if layer is Layer.CURRENT and source is not None and table is not None and expectations(source, table):
            links["expectations"] = table_key(Layer.EXPECTATIONS, source.name, table)
        return {name: dg.MetadataValue.asset(linked) for name, linked in links.items()}

    def _source(self, key: dg.AssetKey) -> SourceConfig | None:
        path = key.path[1:] if key.path[0] == Layer.PROOF.value else key.path
        return self._config.sources.get(path[1]) if path[0] not in _OF_NO_SOURCE else None

    def _tags(self, key: dg.AssetKey) -> dict[str, str]:
        source = self._source(key)
        # The schema of a table is the part before its name.
        schema = key.path[-2] if source is not None and len(key.path) >= 4 else ""
        tags = {
            SOURCE_TAG: "" if source is None else source.name,
            LAYER_TAG: key.path[0],
            SCHEMA_TAG: schema,
        }
        return {name: value for name, value in tags.items() if _TAG_VALUE.fullmatch(value)}

    def _freshness(self, key: dg.AssetKey) -> dg.FreshnessPolicy | None:
        if key in self._tables:
            layer, source, table = self._tables[key]
            return policy(window_s(self._config, source, table, layer))
        if key.path[0] == Layer.PROOF.value and dg.AssetKey(key.path[1:]) in self._tables:
            layer, source, table = self._tables[dg.AssetKey(key.path[1:])]
            is_proved = layer is Layer.CURRENT
            return policy(window_s(self._config, source, table, Layer.PROOF)) if is_proved else None
        if key in self._views:
            return policy(self._views[key].freshness_s or 0.0)
        return slot_policy() if key.path[0] == Layer.SLOTS.value else None

    def _owners(self, key: dg.AssetKey) -> list[str]:
        source = self._source(key)
        return [] if source is None else list(source.owners)

    def _documentation(self, query: Path | None = None) -> md.Metadata:
        files = {} if query is None else {"query": query}
        files["configuration"] = self._config.path
        docs = self._config.dagster.docs
        return md.merged(
            {"dagster/code_references": _code_references(files)},
            md.optional(documentation=None if docs is None else dg.MetadataValue.url(docs)),
        )

    def _with_comment(self, spec: dg.AssetSpec) -> str | None:
        """Return the description with the table's comment behind it, unless the configuration has words about the table."""
        _, source, table = self._tables[spec.key]
        described_as = self._lake[source.name].descriptions.get(table)
        if source.table_config(table).description or described_as is None or not described_as.comment:
            return spec.description
        return f"{spec.description}\n\n{described_as.comment}"

    def _of_table(self, layer: Layer, source: SourceConfig, table: TableName) -> md.Metadata:
        lake = self._lake[source.name]
        state, description = lake.tables.get(table), lake.descriptions.get(table)
        place = _place(layer, source, table, state)
        metadata = md.optional(**{"dagster/uri": None if place is None else uri(self._config.location, place)})
        if state is not None:
            columns = table_columns(layer, state.version, description)
            lineage = table_lineage(layer, source.name, table, state.version)
            metadata |= md.optional(**{"dagster/column_schema": columns, "dagster/column_lineage": lineage})
        elif description is not None and layer is Layer.POSTGRES:
            metadata["dagster/column_schema"] = described_columns(description)
        return metadata

    def _of_view(self, view: ViewConfig) -> md.Metadata:
        metadata: md.Metadata = {"dagster/uri": uri(self._config.location, LakePaths.view(view.name))}
        tables, stored = self._read_columns(view), stored_columns(self._config.location, view.name)
        columns = [] if tables is None else _view_columns(view.sql(), tables)
        if tables is not None and columns:
            metadata["dagster/column_schema"] = view_schema(columns, tables)
            metadata["dagster/column_lineage"] = view_lineage(columns, read_keys(view))
        if stored:
            metadata["dagster/column_schema"] = stored_view_schema(stored)
        return metadata

    def _read_columns(self, view: ViewConfig) -> dict[str, dict[str, str]] | None:
        """Return the columns of each name in a view's SQL with their types; None if one has columns that are not known."""
        if view.external:
            return None
        tables: dict[str, dict[str, str]] = {}
        for alias, (source, table) in view.reads.items():
            state = self._lake.get(source, _LakeState()).tables.get(table)
            if state is None:
                return None
            tables[alias] = lake_column_types(state.version)
        for alias, other in view.views.items():
            tables[alias] = self._columns_of_view(other)
        return tables if all(tables.values()) else None

    def _columns_of_view(self, name: str) -> dict[str, str]:
        """Return the columns of a view with their types; none if they are not known."""
        if name not in self._view_columns:
            view = self._config.views[name]
            tables = self._read_columns(view)
            columns = [] if tables is None else _view_columns(view.sql(), tables)
            schema = view_schema(columns, tables or {}).columns
            self._view_columns[name] = {column.name: column.type for column in schema}
        return self._view_columns[name]


def _view_columns(sql: str, tables: Mapping[str, Mapping[str, str]]) -> list[ViewColumn]:
    # A location without views does without the parser of SQL.
    from assets.support.view_lineage import view_columns

    return view_columns(sql, tables)


def _code_references(files: Mapping[str, Path]) -> dg.CodeReferencesMetadataValue:
    with warnings.catch_warnings():
        # These classes are beta; Dagster's pages of assets and its own integrations have them.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.CodeReferencesMetadataValue(
            code_references=[dg.LocalFileCodeReference(file_path=str(f), label=label) for label, f in files.items()]
        )


def _read(config: Config, source: SourceConfig) -> _LakeState:
    """Return what the lake has; nothing if it can't be read, since the assets are there without it."""
    try:
        lake = SourceLake.open(config.location, source.name)
        cut = newest_cut(lake)
        listed = set(source.tables)
        tables = {} if cut is None else {table: cut.tables[table] for table in listed if table in cut.tables}
        return _LakeState(tables, read_described(lake))
    except (LakeproofError, OSError) as error:
        _log.warning("sources.%s: columns and comments can't be read: %s", source.name, error)
        return _LakeState()


def _place(layer: Layer, source: SourceConfig, table: TableName, state: CutTable | None) -> str | None:
    """Return the key of what a layer has of a table, as far as the configuration and the newest cut say it."""
    paths = LakePaths(source.name)
    if layer is Layer.SNAPSHOT:
        if state is None:
            return paths.all_snapshots
        return f"{paths.snapshot(state.snapshot_incarnation, state.snapshot_lsn)}/{table.key}"
    if layer is Layer.CHANGES:
        return paths.landings if state is None else paths.data(state.incarnation)
    if layer is Layer.HISTORY:
        return paths.history(table)
    return paths.current(table) if layer is Layer.CURRENT else None
