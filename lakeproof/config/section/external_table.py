"""An external table that a view reads: a Delta table that no cycle of ours writes, by its place or its name in a catalog."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lakeproof.config.location import absolute_place

_PARTS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*){1,2}")
_KINDS = ("delta", "catalog")


@dataclass(frozen=True, slots=True)
class ExternalTable:
    """A table at a folder or URL (`delta`), or under a name of the Spark session's catalogs (`catalog`)."""

    kind: Literal["delta", "catalog"]
    place: str

    def __str__(self) -> str:
        return self.place


def read_external(value: dict[str, object], folder: Path) -> ExternalTable:
    """Return the table that `{delta: place}` or `{catalog: name}` names; raise ValueError, as a phrase, for anything else.

    A path is relative to `folder`.
    """
    if len(value) != 1 or not value.keys() <= set(_KINDS):
        raise ValueError(
            "must be source/schema.table, {view: name}, {delta: path or URL} or {catalog: schema.table}; what is no Delta"
            " table has no versions, so write it as one: CONVERT TO DELTA takes a folder of Parquet files"
        )
    ((kind, place),) = value.items()
    if not isinstance(place, str) or not place.strip() or "\0" in place:
        raise ValueError(f"has no place under {kind}")
    if kind == "catalog":
        if not _PARTS.fullmatch(place):
            raise ValueError("is no name in a catalog: schema.table or catalog.schema.table")
        return ExternalTable("catalog", place)
    return ExternalTable("delta", absolute_place(place, folder))
