"""The net change of a table: the rows to delete and the rows to insert, no matter who computed them.

`lakeproof.lake.fold.net_change` computes it from changes and `lakeproof.lake.delta.apply` commits it; neither knows the
other, and nothing is computed or committed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from lakeproof.lake.columns import quoted
from lakeproof.lake.rows.columns import relation
from lakeproof.lake.rows.keys_in_memory import FIRST


@dataclass(frozen=True, slots=True)
class HeldKeys:
    """Each key of rows to delete, once, beside `FIRST`; `types` are the columns' Spark types."""

    rows: pa.Table
    types: Mapping[str, str]

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The least and the greatest value of a single integer key; None for other keys, and if there are none."""
        keys = self.rows.drop_columns([FIRST])
        if keys.num_columns != 1 or not pa.types.is_integer(keys.column(0).type):
            return None
        bounds = pc.min_max(keys.column(0)).as_py()
        return None if bounds["min"] is None else (bounds["min"], bounds["max"])

    def frame(self, session: SparkSession) -> DataFrame:
        """Return the same as a relation that the driver holds."""
        ddl = ", ".join(f"{quoted(name)} {self.types[name]}" for name in self.rows.column_names)
        return relation(session, self.rows, ddl)


@dataclass(frozen=True, slots=True)
class NetChange:
    """`deletes`: rows whose `key` columns have these values go. `images`: rows to insert, with all the table's columns.

    `deletes` may have other columns beside the key, and keys of which the table has no row. None: nothing to delete, or
    nothing to insert. `truncate`: delete all earlier rows; `deletes` is then None. `null_safe`: NULL is a key value like any
    other.
    """

    key: tuple[str, ...] = ()
    deletes: DataFrame | None = None
    images: DataFrame | None = None
    truncate: bool = False
    null_safe: bool = False
    # So many of `deletes`, each key once, are of rows that must exist, as their column `FIRST` says, and of the other keys
    # there may be none (`preconditions.py`). None: not known.
    preconditions: int | None = None
    # In place of `deletes`: keys that this process holds.
    keys: HeldKeys | None = None
    # Frames whose evaluation may refuse: to be persisted and evaluated before anything is committed.
    checked: tuple[DataFrame, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if nothing is deleted or inserted."""
        return self.deletes is None and self.keys is None and self.images is None and not self.truncate
