"""Makes every asset's spec: its group, tags, owners, comments, place, columns and where each of them comes from.

The assets themselves do not belong here: each family says what its own are for and what they depend on. Everything else is
read from the configuration and the lake, when the location is loaded: no server, and no Spark.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import dagster as dg

import lakeproof
from assets.support import metadata as md
from assets.support.columns import described_columns, stored_columns, table_columns, table_lineage, view_lineage
from assets.support.keys import Layer, group_of, proof_key, read_keys, table_key
from assets.support.pace import SLOT_S, policy, window_s
from lakeproof.config.model import Config, SourceConfig, ViewConfig
from lakeproof.errors import LakeproofError
from lakeproof.expectations.configured import expectations
from lakeproof.lake.columns import in_lake
from lakeproof.lake.records.described import read_described
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.records.store import newest_cut
from lakeproof.names import TableName
from lakeproof.postgres.catalog.descriptions import TableDescription
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake
from lakeproof.values.types import spark_type

if TYPE_CHECKING:
    from assets.support.view_lineage import ViewColumn

_TAG_VALUE = re.compile(r"[A-Za-z0-9_.-]{1,63}")
# Hadoop's names of stores, and everybody else's.
_SCHEMES = {"s3a": "s3"}
_log = logging.getLogger("lakeproof.dagster")


@dataclass(frozen=True, slots=True)
class _LakeState:
    """The state of a source's tables in the lake: at the newest cut, and their descriptions."""

    tables: Mapping[TableName, CutTable] = field(default_factory=dict)
    descriptions: Mapping[TableName, TableDescription] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Subject:
    """The subject of an asset: a source, a table of it, a view, or none of them; of a proof, that of what is proved."""

    source: SourceConfig | None = None
    table: TableName | None = None
    view: ViewConfig | None = None

    @property
    def owners(self) -> list[str]:
        """The owners that the configuration names for the table or the view itself, else for its source."""
        if self.source is None:
            return [] if self.view is None else [*self.view.owners]
        own = () if self.table is None else self.source.table_config(self.table).owners
        return [*(own or self.source.owners)]


class Catalog:
    """Makes the specs of one configuration's assets. The lake is read once, when it is made.

    Nobody looks at the specs in the process of a run: if they are not `is_shown`, they have what runs need alone.
    """

    def __init__(self, config: Config, *, is_shown: bool = True) -> None:
        self.config = config
        self._is_shown = is_shown
        sources = [source for source in config.sources.values() if source.tables]
        self._lake = {source.name: _read(config, source) for source in sources} if is_shown else {}
        self._subjects = {
            table_key(layer, source.name, table): _Subject(source, table)
            for source in sources
            for table in source.tables
            for layer in Layer
            if layer.is_of_tables
        }
        for layer in (Layer.POSTGRES, Layer.SLOTS, Layer.MAINTENANCE):
            self._subjects |= {layer.key(source.name): _Subject(source) for source in config.sources.values()}
        self._subjects |= {Layer.VIEWS.key(view.name): _Subject(view=view) for view in config.views.values()}
        self._columns: dict[tuple[str, TableName], dict[Layer, md.Metadata]] = {}
        self._view_columns: dict[str, list[ViewColumn]] = {}
        url = open_store(config.location).url("")
        scheme, separator, rest = url.partition("://")
        self._is_folder = not separator
        self._base = PurePosixPath(url).as_uri() if self._is_folder else f"{_SCHEMES.get(scheme, scheme)}://{rest}"
        # A value that many assets have is one object.
        self._common = {"lakeproof_version": dg.MetadataValue.text(lakeproof.__version__), **self._documented()}

    def spec(
        self,
        key: dg.AssetKey,
        description: str,
        kinds: set[str],
        deps: Iterable[dg.AssetKey] = (),
        *,
        code_version: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> dg.AssetSpec:
        """Return the spec of an asset; what the configuration says of a table comes behind the description."""
        if not self._is_shown:
            return dg.AssetSpec(key, deps=[*deps], kinds=kinds, skippable=True, code_version=code_version)
        layer = Layer(key.path[0])
        proved = dg.AssetKey(key.path[1:]) if layer is Layer.PROOF else key
        about = self._subjects.get(proved, _Subject())
        schema = proved.path[-2] if about.table is not None else ""
        tags = {"source": "" if about.source is None else about.source.name, "layer": layer.value, "schema": schema}
        shown = self._shown(key, layer, about)
        return dg.AssetSpec(
            key,
            deps=[*deps],
            kinds=kinds,
            skippable=True,
            code_version=code_version,
            group_name=group_of(key),
            description=description if layer is Layer.PROOF else self._described(description, about),
            freshness_policy=policy(self._window_s(layer, proved, about)),
            owners=about.owners,
            tags={f"lakeproof/{name}": value for name, value in tags.items() if _TAG_VALUE.fullmatch(value)},
            metadata={**shown, **(metadata or {})},
        )

    def uri(self, key: str) -> str:
        """Return the URI of a key in the lake."""
        return f"{self._base}/{quote(key) if self._is_folder else key}"

    def _window_s(self, layer: Layer, proved: dg.AssetKey, about: _Subject) -> float:
        """Return the greatest age of an asset's newest event, 0 for any."""
        if about.source is not None and about.table is not None:
            is_other_proof = layer is Layer.PROOF and proved.path[0] != Layer.CURRENT.value
            return 0.0 if is_other_proof else window_s(self.config, about.source, about.table, layer)
        if about.view is not None and layer is Layer.VIEWS:
            return about.view.freshness_s or 0.0
        return SLOT_S if layer is Layer.SLOTS else 0.0

    def _described(self, description: str, about: _Subject) -> str:
        """Return the description, with the table's by the configuration behind it, or else its comment in the source."""
        if about.source is None or about.table is None:
            return description
        comment = self._lake[about.source.name].descriptions.get(about.table)
        own = about.source.table_config(about.table).description or (comment and comment.comment)
        return "\n\n".join(text for text in (description, own) if text)

    def _shown(self, key: dg.AssetKey, layer: Layer, about: _Subject) -> md.Metadata:
        """Return the metadata: the name, the place, and of tables and views the columns and the proofs."""
        metadata: md.Metadata = {**self._common}
        source, table, view = about.source, about.table, about.view
        if layer is Layer.PROOF:
            return {"dagster/table_name": ".".join(key.path)} | metadata
        if source is not None and layer in {Layer.POSTGRES, Layer.SLOTS}:
            metadata |= {"source": source.name, "publication": source.publication, "slot": source.slot}
        if view is not None:
            metadata |= {
                "dagster/table_name": f"views.{view.name}",
                "sql_file": dg.MetadataValue.path(str(view.sql_file)),
            }
            metadata |= {
                "dagster/uri": self.uri(LakePaths.view(view.name)),
                "proof": dg.MetadataValue.asset(proof_key(key)),
            }
            metadata |= self._documented(view.sql_file) | self._of_view(view)
        elif source is not None and table is not None:
            metadata["dagster/table_name"] = str(table)
            if layer is not Layer.POSTGRES:
                metadata |= {"dagster/table_name": f"{layer.value}.{source.name}.{table}", "source": source.name}
                metadata["dagster/uri"] = self.uri(self._place(layer, source, table))
            # The checks of an asset stand on these; the UI shows none of them on its own page.
            if layer in {Layer.HISTORY, Layer.CURRENT}:
                metadata["proof"] = dg.MetadataValue.asset(proof_key(key))
            if layer is Layer.CURRENT and expectations(source, table):
                metadata["expectations"] = dg.MetadataValue.asset(table_key(Layer.EXPECTATIONS, source.name, table))
            metadata |= self._of_table(source.name, table).get(layer, {})
        elif source is not None and layer is Layer.MAINTENANCE:
            metadata |= {"dagster/table_name": f"maintenance.{source.name}", "dagster/uri": self.uri(source.name)}
        return metadata

    def _documented(self, query: Path | None = None) -> md.Metadata:
        files = {**({} if query is None else {"query": query}), "configuration": self.config.path}
        docs = self.config.dagster.docs
        with warnings.catch_warnings():
            # These classes are beta; Dagster's pages of assets and its own integrations have them.
            warnings.simplefilter("ignore", dg.BetaWarning)
            references = dg.CodeReferencesMetadataValue(
                code_references=[
                    dg.LocalFileCodeReference(file_path=str(file), label=label) for label, file in files.items()
                ]
            )
        return {"dagster/code_references": references} | (
            {} if docs is None else {"documentation": dg.MetadataValue.url(docs)}
        )

    def _place(self, layer: Layer, source: SourceConfig, table: TableName) -> str:
        """Return the key of what a layer has of a table, as far as the configuration and the newest cut say it."""
        paths, state = LakePaths(source.name), self._lake[source.name].tables.get(table)
        if layer is Layer.SNAPSHOT:
            if state is None:
                return paths.all_snapshots
            return f"{paths.snapshot(state.snapshot_incarnation, state.snapshot_lsn)}/{table.key}"
        if layer is Layer.CHANGES:
            return paths.landings if state is None else paths.data(state.incarnation)
        if layer is Layer.DAILY:
            return paths.daily(table)
        return paths.history(table) if layer is Layer.HISTORY else paths.current(table)

    def _of_table(self, source: str, table: TableName) -> dict[Layer, md.Metadata]:
        """Return the columns of a table in each layer, and where they come from, as far as the lake knows them."""
        if (source, table) not in self._columns:
            state, description = self._lake[source].tables.get(table), self._lake[source].descriptions.get(table)
            columns: dict[Layer, dg.TableSchema] = {}
            lineage: dict[Layer, dg.TableColumnLineage] = {}
            if state is not None:
                columns = table_columns(state.version, description)
                lineage = table_lineage(source, table, state.version)
            elif description is not None:
                columns = {Layer.POSTGRES: described_columns(description)}
            self._columns[source, table] = {
                layer: md.optional(**{"dagster/column_schema": schema, "dagster/column_lineage": lineage.get(layer)})
                for layer, schema in columns.items()
            }
        return self._columns[source, table]

    def _of_view(self, view: ViewConfig) -> md.Metadata:
        columns, stored = self._columns_of_view(view), stored_columns(self.config.location, view.name)
        by_query = dg.TableSchema([dg.TableColumn(column.name, column.type) for column in columns]) if columns else None
        lineage = view_lineage(columns, read_keys(view)) if columns else None
        return md.optional(**{"dagster/column_schema": stored or by_query, "dagster/column_lineage": lineage})

    def _columns_of_view(self, view: ViewConfig) -> list[ViewColumn]:
        """Return the columns of a view by its query; none if it reads something whose columns are not known."""
        # A location without views does without the parser of SQL.
        from assets.support.view_lineage import view_columns

        if view.name not in self._view_columns:
            tables: dict[str, dict[str, str]] = {alias: {} for alias in view.external}
            for alias, (source, table) in view.reads.items():
                state = self._lake.get(source, _LakeState()).tables.get(table)
                columns = () if state is None else in_lake(state.version).columns
                tables[alias] = {column.name: spark_type(column) for column in columns}
            for alias, other in view.views.items():
                tables[alias] = {c.name: c.type for c in self._columns_of_view(self.config.views[other])}
            self._view_columns[view.name] = view_columns(view.sql(), tables) if all(tables.values()) else []
        return self._view_columns[view.name]


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
