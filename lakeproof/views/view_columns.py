"""The columns of a view's table beside those of its query: what is the same, and what can't be kept.

Whether a view may get other columns is decided by `refresh`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from lakeproof.errors import ConfigError
from lakeproof.hidden_columns import DUP
from lakeproof.lake.columns import needs_mapping


def columns_of(rows: DataFrame) -> dict[str, str]:
    """Return the columns with their types, those of a view's table whether or not `rows` has its numbers."""
    return {f.name: f.dataType.simpleString() for f in rows.schema.fields} | {DUP: "bigint"}


def check_same_columns(view: str, desired: DataFrame, stored: DataFrame) -> None:
    """Raise ConfigError if the query's columns are not the table's."""
    now, then = columns_of(desired), columns_of(stored)
    if now != then:
        changed = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
        raise ConfigError(
            f"view {view}",
            f"its query gives other columns than its table has: {', '.join(changed)}",
            f"see what would change with `lakeproof replace {view}`, and apply it",
        )


def check_names(view: str, desired: DataFrame, metadata: Mapping[str, Any]) -> None:
    """Raise ConfigError for a name that the files of the table with this `metaData` can't have."""
    if needs_mapping(desired.columns) and "delta.columnMapping.mode" not in (metadata.get("configuration") or {}):
        odd = next(name for name in desired.columns if needs_mapping([name]))
        reason = "Parquet refuses a character in its name, and the view's table was made for other names"
        raise ConfigError(f"view {view}: column {odd}", reason, "give it another name with AS")
