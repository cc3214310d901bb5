"""The ordinals that a cut has: a row of history is in a cut if its `_lp_ord` and position say so, whatever cycle wrote it.

Numbering rows belongs to `lakeproof.lake.planning.landing_order`.

    whole   all rows below it are in the cut
    end     the cut has no row from here on; between the two are the rows of the segment in which it ends, up to its position
"""

from __future__ import annotations

from dataclasses import dataclass

from lakeproof.field_types import Count
from lakeproof.lsn import Lsn
from lakeproof.storage.document import Part


@dataclass(frozen=True, slots=True)
class CutOrdinals(Part):
    """The ordinals of a cut: all rows below `whole` are in it, and those below `end` up to its position."""

    whole: Count
    end: Count

    def has(self, ordinal: int, lsn: Lsn, position: Lsn) -> bool:
        """True if a row of history is in the cut at `position`."""
        return ordinal < self.whole or (ordinal < self.end and lsn <= position)

    def with_own_rows(self, first: int, rows: int) -> CutOrdinals:
        """Return the ordinals of a cut whose cycle has so many rows of its own, from ordinal `first` on."""
        return self if rows == 0 else CutOrdinals(first + rows, first + rows)


NO_ROWS = CutOrdinals(0, 0)
