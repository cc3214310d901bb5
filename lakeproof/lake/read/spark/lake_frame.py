"""A table or view that Spark has opened: a DataFrame that gives its rows as Arrow and pandas, as those without Spark do.

Opening belongs to `open`, what is given to `in_memory`. What selects columns and rows returns such a frame again; anything
else that a DataFrame does (joins, groups, windows) returns Spark's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from lakeproof.lake.read.arrow.in_memory import ROWS_MAX, to_pandas, too_many

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # it ships no types

_UTC = "UTC"


def _again(name: str) -> Callable[..., Any]:
    """Return Spark's method of that name, whose result is a lake's frame again."""
    method = getattr(ClassicDataFrame, name)

    def of_lake(self: LakeFrame, *arguments: Any, **named: Any) -> LakeFrame:
        return LakeFrame.of(method(self, *arguments, **named))

    return of_lake


class LakeFrame(ClassicDataFrame):
    """A DataFrame of the lake; `arrow` and `pandas` are those of `lakeproof.read`'s rows."""

    @classmethod
    def of(cls, frame: DataFrame) -> LakeFrame:
        """Return the same rows; nothing is read."""
        return cls(frame._jdf, frame.sparkSession)  # noqa: SLF001  as Spark's own methods make frames

    select, where, filter = _again("select"), _again("where"), _again("filter")
    drop, limit, orderBy = _again("drop"), _again("limit"), _again("orderBy")  # noqa: N815  Spark's name

    def arrow(self, rows_max: int | None = ROWS_MAX) -> pa.Table:
        """Return all rows in memory with exact types; raises LakeError for more than `rows_max` (None: any number)."""
        frame = self if rows_max is None else ClassicDataFrame.limit(self, rows_max + 1)
        table = frame.toArrow()
        if rows_max is not None and table.num_rows > rows_max:
            raise too_many(rows_max)
        # Spark writes the session's zone, which is UTC by another name.
        return table.cast(pa.schema([_in_utc(field) for field in table.schema]))

    def pandas(self, rows_max: int | None = ROWS_MAX) -> pd.DataFrame:
        """Return all rows in memory as a frame whose columns have Arrow's types; raises as `arrow`, and without pandas."""
        return to_pandas(self.arrow(rows_max))


def _in_utc(field: pa.Field) -> pa.Field:
    if pa.types.is_timestamp(field.type) and field.type.tz is not None:
        return field.with_type(pa.timestamp(field.type.unit, _UTC))
    return field
