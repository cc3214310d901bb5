"""The columns of landed files, segments' and chunks': their names, which the lake's tables share, and their statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeproof.hidden_columns import COMMIT_TIME, LSN, ORD
from lakeproof.schema import REFUSED_IN_NAMES, SchemaVersion, lake_names

if TYPE_CHECKING:
    import pyarrow as pa

# Delta keeps statistics of so many columns by itself; a key behind them has some, too.
STATISTICS_COLUMNS = 32


def file_names(version: SchemaVersion) -> list[str]:
    """Return the names of the table's columns in its files, in order: the lake's, or `#<attribute number>#`.

    The second form is for names that Parquet refuses. A version under the lake's names has the same.
    """
    names = lake_names(version.columns)
    result: list[str] = []
    for column in version.columns:
        name = names[column.name]
        if not REFUSED_IN_NAMES.isdisjoint(name):
            name = f"#{column.attnum}#"
            while name in {*names.values(), *result}:
                name += "#"
        result.append(name)
    return result


def columns_with_statistics(version: SchemaVersion, schema: pa.Schema) -> list[str]:
    """Return the columns of a file with `schema` that have statistics: what a table's files are pruned by."""
    # Arrow is for those who write files: others want the names alone, and it takes 0.2 s.
    from lakeproof.storage.parquet import bounded

    names = file_names(version)
    keys = {name for name, column in zip(names, version.columns, strict=True) if column.name in version.key}
    chosen = {*names[:STATISTICS_COLUMNS], *keys, ORD, LSN, COMMIT_TIME}
    return [name for name in bounded(schema) if name in chosen]
