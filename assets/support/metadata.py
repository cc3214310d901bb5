"""Engine values as Dagster metadata: every LSN as text for people and as an integer for plots.

Which values an asset reports belongs to its family's module. Metadata reports state; nothing reads it back to decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import dagster as dg

from lakeproof.lsn import Lsn
from lakeproof.schema import SchemaVersion

Metadata = dict[str, Any]


def lsns(**values: Lsn | None) -> Metadata:
    """Each LSN twice: `start_lsn` (`0/16B3748`) and `start_lsn_int`; what is None is left out."""
    metadata: Metadata = {}
    for name, value in values.items():
        if value is not None:
            metadata[name] = str(value)
            metadata[f"{name}_int"] = int(value)
    return metadata


def times(**values: datetime | None) -> Metadata:
    """Points in time, shown in the reader's own zone; what is None is left out."""
    return {name: dg.MetadataValue.timestamp(value) for name, value in values.items() if value is not None}


def known(**values: object) -> Metadata:
    """Whatever is not None."""
    return {name: value for name, value in values.items() if value is not None}


def row_count(rows: int | None) -> Metadata:
    """Dagster's own tile; nothing where counting was not free."""
    return {} if rows is None else {"dagster/row_count": rows}


def column_schema(version: SchemaVersion | None) -> Metadata:
    """The columns tab: PostgreSQL's types, and which columns make the key; nothing where the version is not known."""
    if version is None:
        return {}
    columns = [
        dg.TableColumn(
            name=column.name,
            type=column.type_name,
            constraints=dg.TableColumnConstraints(nullable=column.name not in version.key),
            tags={"key": ""} if column.name in version.key else {},
        )
        for column in version.columns
    ]
    return {"dagster/column_schema": dg.TableSchema(columns=columns)}


def data_version(position: Lsn) -> dg.DataVersion:
    """The data version of a table at a position: the LSN's text."""
    return dg.DataVersion(str(position))


def merged(*parts: Mapping[str, Any]) -> Metadata:
    """One dictionary of several; the later one wins."""
    return {name: value for part in parts for name, value in part.items()}
