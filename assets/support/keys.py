"""Asset keys: the layers of the lake, which are also Dagster's groups, and the key of every asset.

The assets themselves do not belong here; each family has its own module.
"""

from __future__ import annotations

from enum import Enum

import dagster as dg

from lakeproof.names import TableName


class Layer(str, Enum):
    """A layer of the lake; the first part of an asset's key, and its group."""

    POSTGRES = "postgres"
    SNAPSHOT = "snapshot"
    CHANGES = "changes"
    HISTORY = "history"
    CURRENT = "current"
    VIEWS = "views"
    SLOTS = "slots"
    MAINTENANCE = "maintenance"
    PROOF = "proof"
    EXPECTATIONS = "expectations"


def table_key(layer: Layer, source: str, table: TableName) -> dg.AssetKey:
    """Return `<layer>/<source>/<schema>/<table>`.

    Dagster makes identifiers from keys and allows no percent sign in them. So an unusual character is `-20` here if
    `TableName.key` has `%20`, and a hyphen itself is `-2D`.
    """
    return dg.AssetKey([layer.value, source, *table.key.replace("-", "%2D").replace("%", "-").split("/")])


def slot_key(source: str) -> dg.AssetKey:
    """Return `slots/<source>`."""
    return dg.AssetKey([Layer.SLOTS.value, source])


def maintenance_key(source: str) -> dg.AssetKey:
    """Return `maintenance/<source>`."""
    return dg.AssetKey([Layer.MAINTENANCE.value, source])


def view_key(view: str) -> dg.AssetKey:
    """Return `views/<view>`."""
    return dg.AssetKey([Layer.VIEWS.value, view])


def proof_key(proved: dg.AssetKey) -> dg.AssetKey:
    """Return `proof/<key>`, the key of the proof of an asset."""
    return dg.AssetKey([Layer.PROOF.value, *proved.path])
