"""Asset keys: the layers of the lake, the key of every asset, and the group in which Dagster shows it."""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache

import dagster as dg

from lakeproof.config.model import SourceConfig, ViewConfig
from lakeproof.config.section.external_table import ExternalTable
from lakeproof.names import TableName

_UNUSUAL = re.compile(r"[^A-Za-z0-9_]+")


class Layer(str, Enum):
    """A layer of the lake; the first part of an asset's key, and the last of its group's name."""

    POSTGRES = "postgres"
    SNAPSHOT = "snapshot"
    CHANGES = "changes"
    HISTORY = "history"
    CURRENT = "current"
    VIEWS = "views"
    EXTERNAL = "external"
    SLOTS = "slots"
    MAINTENANCE = "maintenance"
    PROOF = "proof"
    EXPECTATIONS = "expectations"
    DAILY = "daily"

    @property
    def is_of_tables(self) -> bool:
        """True if the layer has an asset for each table of a source, `<layer>/<source>/<schema>/<table>`."""
        return self not in {Layer.VIEWS, Layer.EXTERNAL, Layer.SLOTS, Layer.MAINTENANCE, Layer.PROOF}

    def key(self, name: str) -> dg.AssetKey:
        """Return `<layer>/<name>`, of a source or of a view."""
        return dg.AssetKey([self.value, name])


@lru_cache(maxsize=1 << 16)
def table_key(layer: Layer, source: str, table: TableName) -> dg.AssetKey:
    """Return `<layer>/<source>/<schema>/<table>`.

    Dagster makes identifiers from keys and allows no percent sign in them. So an unusual character is `-20` here if
    `TableName.key` has `%20`, and a hyphen itself is `-2D`.
    """
    return dg.AssetKey([layer.value, source, *table.key.replace("-", "%2D").replace("%", "-").split("/")])


def layer_keys(source: SourceConfig, *layers: Layer) -> list[dg.AssetKey]:
    """Return the keys of all tables of a source in these layers."""
    return [table_key(layer, source.name, table) for layer in layers for table in source.tables]


def external_key(table: ExternalTable) -> dg.AssetKey:
    """Return `external/catalog/<schema>/<table>`, or `external/<scheme>/<parts of the place>`; `file` for a folder.

    Characters that Dagster does not take are written as those of tables.
    """
    scheme, parts = "catalog", table.place.split(".")
    if table.kind == "delta":
        before, _, after = table.place.rpartition("://")
        scheme, parts = before or "file", [part for part in after.split("/") if part]
    return dg.AssetKey([Layer.EXTERNAL.value, scheme, *(_UNUSUAL.sub(_written, part) for part in parts)])


def _written(match: re.Match[str]) -> str:
    return "".join(f"-{octet:02X}" for octet in match[0].encode())


def read_keys(view: ViewConfig) -> dict[str, dg.AssetKey]:
    """Return the asset of each name in a view's SQL."""
    keys = {name: table_key(Layer.CURRENT, source, table) for name, (source, table) in view.reads.items()}
    keys |= {name: Layer.VIEWS.key(other) for name, other in view.views.items()}
    return keys | {name: external_key(table) for name, table in view.external.items()}


def proof_key(proved: dg.AssetKey) -> dg.AssetKey:
    """Return `proof/<key>`, the key of the proof of an asset."""
    return dg.AssetKey([Layer.PROOF.value, *proved.path])


def group_of(key: dg.AssetKey) -> str:
    """Return the group of an asset: `<source>_<layer>`, without a source the layer alone.

    A slot is shown among the tables of its server. The proof of a view is among those of views, whatever it reads.
    """
    path = key.path
    if path[0] in (Layer.VIEWS.value, Layer.EXTERNAL.value):
        return path[0]
    if path[0] == Layer.PROOF.value:
        return f"{path[1]}_{path[0]}" if path[1] == Layer.VIEWS.value else f"{path[2]}_{path[0]}"
    layer = Layer.POSTGRES.value if path[0] == Layer.SLOTS.value else path[0]
    return f"{path[1]}_{layer}"


# Proofs, days, maintenance and views, each of which may start a JVM of `spark.driver_memory`: dagster.yaml limits how
# many work at a time. Compactions are not in it: nothing may keep them waiting, and a continuous one would keep its place.
SPARK_POOL = "lakeproof_spark"
