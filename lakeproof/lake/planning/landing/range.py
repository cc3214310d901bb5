"""The landed files of a table's range, as a value for those who read their rows.

Reading rows belongs to `lakeproof.lake.rows` and `lakeproof.lake.fold`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakeproof.landing.segments.reader import Slice
from lakeproof.lsn import Lsn
from lakeproof.schema import SchemaVersion


@dataclass(frozen=True, slots=True)
class LandedRange:
    """The landed files of one table under one schema version, and the part of the stream, (start, end], to take from them.

    `schema` has the lake's column names; `first_ordinals` gives the `_lp_ord` of row 0 of each segment by its number.
    """

    schema: SchemaVersion
    slices: Sequence[Slice]
    first_ordinals: Mapping[int, int]
    start: Lsn
    end: Lsn
