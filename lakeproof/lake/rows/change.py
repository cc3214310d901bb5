"""The net change of a table: the rows to delete and the rows to insert, no matter who computed them.

`lakeproof.lake.fold.net_change` computes it from changes and `lakeproof.lake.delta.apply` commits it; neither knows the
other, and nothing is computed or committed here.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame


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
    # there may be none (`correction.check_rows`). None: not known.
    preconditions: int | None = None
    # Frames whose evaluation may refuse: to be persisted and evaluated before anything is committed.
    checked: tuple[DataFrame, ...] = ()
