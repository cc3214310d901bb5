"""The check that a change met exactly the rows that it presupposes, by counts alone; Spark is not imported here.

What is presupposed does not belong here (`preconditions`, `keys_in_memory`), nor finding rows (`lake.delta.search`).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut


class DriftedError(TableHeldError):
    """The lake does not have the rows that the changes presuppose."""


def check_firsts(thing: str, firsts: pa.ChunkedArray, preconditions: int) -> None:
    """Raise DriftedError unless the rows that were met, each with its key's `__lp_first`, are those that are presupposed."""
    check_counts(thing, preconditions, rows=len(firsts), keys=pc.count_distinct(firsts).as_py())


def check_counts(thing: str, preconditions: int, *, rows: int = 0, keys: int = 0) -> None:
    """Raise DriftedError unless the `rows` that were met are one of each key presupposed, of which `keys` were met."""
    detail: dict[str, str] = {}
    if preconditions > keys:
        detail |= {"absent": f"{preconditions - keys:,}", "presupposed": f"{preconditions:,}"}
    if rows > keys:
        detail["unexpected"] = f"{rows - keys:,}"
    if detail:
        raise DriftedError(thing, HeldCause.ROWS_DIFFER, WayOut.SNAPSHOT, detail)
