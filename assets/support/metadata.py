"""Engine values as Dagster metadata: every LSN as text for people and as an integer for plots.

Metadata reports state; nothing reads it back to make a decision. The choice of values does not belong here; each asset
family's module makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import dagster as dg

from lakeproof.lsn import Lsn

Metadata = dict[str, Any]


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


def row_count(rows: int | None) -> Metadata:
    """Return the row count for Dagster's own tile; nothing if it is unknown because counting would have cost time."""
    return {} if rows is None else {"dagster/row_count": rows}


def data_version(position: Lsn) -> dg.DataVersion:
    """Return the data version of a table at a position: the LSN's text."""
    return dg.DataVersion(str(position))


def merged(*parts: Mapping[str, Any]) -> Metadata:
    """Merge several dictionaries into one; later values win."""
    return {name: value for part in parts for name, value in part.items()}
