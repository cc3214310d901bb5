"""The names of assets: one layer after the other, one group per layer.

What an asset does belongs to the module of its family.
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
    """`<layer>/<source>/<schema>/<table>`.

    Dagster makes identifiers of keys and knows no percent sign in them, so an odd character is `-20` here where
    `TableName.key` has `%20`, and a hyphen itself is `-2D`.
    """
    return dg.AssetKey([layer.value, source, *table.key.replace("-", "%2D").replace("%", "-").split("/")])


def slot_key(source: str) -> dg.AssetKey:
    """`slots/<source>`."""
    return dg.AssetKey([Layer.SLOTS.value, source])


def maintenance_key(source: str) -> dg.AssetKey:
    """`maintenance/<source>`."""
    return dg.AssetKey([Layer.MAINTENANCE.value, source])


def view_key(view: str) -> dg.AssetKey:
    """`views/<view>`."""
    return dg.AssetKey([Layer.VIEWS.value, view])


def proof_key(of: dg.AssetKey) -> dg.AssetKey:
    """`proof/<key>`: the proof of that asset."""
    return dg.AssetKey([Layer.PROOF.value, *of.path])
