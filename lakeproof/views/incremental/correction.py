"""The correction of a view: the rows of its table that go, and the rows of its query that come in their place.

Computing it belongs to `views.difference`, for the whole query, and to the modules here; committing it to `views.refresh`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from lakeproof.lake.delta.log.state import TableState
from lakeproof.lake.rows.change import Numbers
from lakeproof.lake.rows.correction import Correction


@dataclass(frozen=True, slots=True)
class PlacedChange:
    """Rows to insert in place of those at `places` (path in the log → row numbers) of the view's table at `before`."""

    before: TableState
    images: DataFrame | None
    places: Mapping[str, Numbers]


@dataclass(frozen=True, slots=True)
class ViewCorrection:
    """The rows to delete, as (`_lp_key`, `_lp_dup`), and the whole rows to insert; None if there are none.

    `truncate`: delete all rows. `correction` selects both; release it once they are written. `placed` has both instead, if
    they are so few that this process has found their places.
    """

    retractions: DataFrame | None
    insertions: DataFrame | None
    retracted: int
    inserted: int
    truncate: bool = False
    correction: Correction | None = None
    new_columns: bool = False
    placed: PlacedChange | None = None
