"""Engine values as Dagster metadata: every LSN as text for people and as an integer for plots.

Metadata reports state; nothing reads it back to make a decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import dagster as dg

from lakeproof.lsn import Lsn

Metadata = dict[str, Any]
_DATA_VERSION = "dagster/data_version"


def lsns(**values: Lsn | None) -> Metadata:
    """Return each LSN twice, as `start_lsn` (`0/16B3748`) and as `start_lsn_int`; None values are left out."""
    metadata: Metadata = {}
    for name, value in values.items():
        if value is not None:
            metadata[name] = str(value)
            metadata[f"{name}_int"] = int(value)
    return metadata


def times(**values: datetime | None) -> Metadata:
    """Return points in time, which the UI shows in the reader's time zone; None values are left out."""
    return {name: dg.MetadataValue.timestamp(value) for name, value in values.items() if value is not None}


def optional(**values: object) -> Metadata:
    """Return the values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def size(rows: int | None, size_bytes: int | None, chunks: int | None) -> Metadata:
    """Return the size of a copy; None values are for `optional` to leave out."""
    return {"dagster/row_count": rows, "dagster/size_bytes": size_bytes, "chunks": chunks}


def table(rows: Iterable[Mapping[str, str | int | float | bool | None]]) -> dg.MetadataValue | None:
    """Return rows as the UI shows a table; None without any."""
    records = [dg.TableRecord(dict(row)) for row in rows]
    return dg.MetadataValue.table(records) if records else None


def event(
    key: dg.AssetKey, metadata: Metadata, version: object | None, description: str | None = None
) -> dg.AssetMaterialization:
    """Return the event of an asset; its data version is the text of `version`, an LSN for most."""
    tags = {} if version is None else {_DATA_VERSION: str(version)}
    return dg.AssetMaterialization(key, description, metadata, tags=tags)


def result(event: dg.AssetMaterialization) -> dg.MaterializeResult[None]:
    """Return the same as the result of a run's own asset."""
    version = (event.tags or {}).get(_DATA_VERSION)
    data_version = None if version is None else dg.DataVersion(version)
    return dg.MaterializeResult(asset_key=event.asset_key, metadata=event.metadata, data_version=data_version)


def merged(*parts: Mapping[str, Any]) -> Metadata:
    """Merge several dictionaries into one; later values win."""
    return {name: value for part in parts for name, value in part.items()}
