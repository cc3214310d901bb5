"""The checksum of a table's history as a value in a cut.

Computing it from rows does not belong here but in `lakeproof.lake.rows.history_sum`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from lakeproof.storage.document_fields import Fields

_BITS = 60


_DIGITS = re.compile(r"[0-9a-f]{15}")


@dataclass(frozen=True, slots=True)
class HistorySum:
    """Rows, and the sum of their hashes modulo 2**60."""

    rows: int = 0
    total: int = 0

    def plus(self, other: HistorySum) -> HistorySum:
        """Return the sum with the rows of another sum."""
        return HistorySum(self.rows + other.rows, (self.total + other.total) % (1 << _BITS))

    def minus(self, other: HistorySum) -> HistorySum:
        """Return the sum without the rows of another sum."""
        return HistorySum(self.rows - other.rows, (self.total - other.total) % (1 << _BITS))

    def to_json(self) -> dict[str, Any]:
        """Return the field `history_sum` of a cut's entry."""
        return {"rows": self.rows, "total": f"{self.total:015x}"}

    @classmethod
    def from_fields(cls, f: Fields) -> HistorySum:
        """Read what `to_json` gives; raises LakeError for a damaged field. After damage `rows` may be negative."""
        rows = f.value("rows")
        if type(rows) is not int:
            raise f.damaged("rows", "is not a whole number")
        return cls(rows, int(f.matching("total", _DIGITS), 16))
