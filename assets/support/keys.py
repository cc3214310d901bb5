"""Asset keys: the layers of the lake, the key of every asset, and the groups in which Dagster shows them.

The assets themselves do not belong here; each family has its own module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import PurePosixPath
from urllib.parse import quote

import dagster as dg

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.section.external_table import ExternalTable
from lakeproof.names import TableName
from lakeproof.storage.open import open_store

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


@lru_cache(maxsize=1 << 16)
def table_key(layer: Layer, source: str, table: TableName) -> dg.AssetKey:
    """Return `<layer>/<source>/<schema>/<table>`.

    Dagster makes identifiers from keys and allows no percent sign in them. So an unusual character is `-20` here if
    `TableName.key` has `%20`, and a hyphen itself is `-2D`.
    """
    return dg.AssetKey([layer.value, source, *table.key.replace("-", "%2D").replace("%", "-").split("/")])


def source_key(source: str) -> dg.AssetKey:
    """Return `postgres/<source>`, the key of a source whose tables are not known."""
    return dg.AssetKey([Layer.POSTGRES.value, source])


def slot_key(source: str) -> dg.AssetKey:
    """Return `slots/<source>`."""
    return dg.AssetKey([Layer.SLOTS.value, source])


def maintenance_key(source: str) -> dg.AssetKey:
    """Return `maintenance/<source>`."""
    return dg.AssetKey([Layer.MAINTENANCE.value, source])


def view_key(view: str) -> dg.AssetKey:
    """Return `views/<view>`."""
    return dg.AssetKey([Layer.VIEWS.value, view])


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


# Raise it when the same changes would produce different rows: the UI then marks older materializations as outdated.
COMPACTION_CODE_VERSION = "1"

# Proofs, days, maintenance and views, each of which may start a JVM of `spark.driver_memory`: dagster.yaml limits how
# many work at a time. Compactions are not in it: nothing may keep them waiting, and a continuous one would keep its place.
SPARK_POOL = "lakeproof_spark"


@dataclass(frozen=True, slots=True)
class LayerTable:
    """A source's table in one layer; `store_key` locates it in the lake's store."""

    source: SourceConfig
    table: TableName
    layer: Layer
    store_key: str


def table_spec(
    config: Config,
    target: LayerTable,
    *,
    deps: Iterable[dg.AssetKey],
    kinds: set[str],
    description: str,
    code_version: str | None = None,
) -> dg.AssetSpec:
    """Return the spec of a table in one layer, with the owners and the description that the configuration has for it."""
    source, table, layer = target.source, target.table, target.layer
    options = source.table_config(table)
    return dg.AssetSpec(
        key=table_key(layer, source.name, table),
        deps=list(deps),
        group_name=layer.value,
        description=f"{description}\n\n{options.description}".rstrip(),
        kinds=kinds,
        owners=list(options.owners),
        code_version=code_version,
        skippable=True,
        metadata={
            "dagster/table_name": f"{layer.value}.{source.name}.{table}",
            "dagster/uri": uri(config.location, target.store_key),
            "source": source.name,
        },
    )


# Hadoop's names of stores, and everybody else's.
_SCHEMES = {"s3a": "s3"}


def uri(lake: LakeLocation, key: str) -> str:
    """Return the URI of a key in a lake."""
    base, is_folder = _base(lake)
    return f"{base}/{quote(key) if is_folder else key}"


@lru_cache(maxsize=4)
def _base(lake: LakeLocation) -> tuple[str, bool]:
    """Return the URI of a lake, and if it is a folder of this machine; found out once for all the assets of a location."""
    url = open_store(lake).url("")
    scheme, separator, rest = url.partition("://")
    return (f"{_SCHEMES.get(scheme, scheme)}://{rest}", False) if separator else (PurePosixPath(url).as_uri(), True)
