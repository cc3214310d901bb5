"""Rows in memory as Arrow and pandas: exact types, and never more rows than the caller allows.

Reading them does not belong here (`frames.py` without Spark, `lake_frame.py` with it).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeproof.errors import ConfigError, LakeError

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # it ships no types

# A caller who says nothing gets at most so many rows into the memory of a notebook or a service.
ROWS_MAX = 10_000_000


def to_arrow(schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows_max: int | None) -> pa.Table:
    """Return the batches as one table; raises LakeError for more than `rows_max` rows (None: any number)."""
    kept: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        if rows_max is not None and rows > rows_max:
            raise too_many(rows_max)
        kept.append(batch)
    return pa.Table.from_batches(kept, schema)


def too_many(rows_max: int) -> LakeError:
    """Return the error about rows that are not read into memory."""
    remedy = (
        "select columns and rows, read `lakeproof.read(…).batches()`, or allow more with rows_max (None: any number)"
    )
    return LakeError("rows in memory", f"there are more than {rows_max:,}", remedy)


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Return the table as a frame whose columns have Arrow's types: no value is changed by pandas' own.

    Raises ConfigError if pandas is not installed.
    """
    try:
        import pandas as pd
    except ModuleNotFoundError:
        raise ConfigError("pandas", "it is not installed", "install lakeproof[pandas], or use `arrow()`") from None
    return table.to_pandas(types_mapper=pd.ArrowDtype)
