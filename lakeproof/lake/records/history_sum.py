"""The checksum of a table's history as a value in a cut.

Computing the sum from rows is in `lakeproof.lake.rows.history_sum`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from lakeproof.field_types import AsText
from lakeproof.storage.document import Part

_BITS = 60
_DIGITS = re.compile(r"[0-9a-f]{15}")


def _total(digits: str) -> int:
    if not _DIGITS.fullmatch(digits):
        raise ValueError("not a total")
    return int(digits, 16)


_Total = Annotated[int, AsText(_total, lambda total: f"{total:015x}", "is not 15 hexadecimal digits")]


@dataclass(frozen=True, slots=True)
class HistorySum(Part):
    """Rows, and the sum of their hashes modulo 2**60. After damage `rows` may be negative."""

    rows: int = 0
    total: _Total = 0

    def plus(self, other: HistorySum) -> HistorySum:
        """Return the sum with the rows of another sum."""
        return HistorySum(self.rows + other.rows, (self.total + other.total) % (1 << _BITS))

    def minus(self, other: HistorySum) -> HistorySum:
        """Return the sum without the rows of another sum."""
        return HistorySum(self.rows - other.rows, (self.total - other.total) % (1 << _BITS))
