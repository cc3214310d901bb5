"""A table's landed changes in a range, whatever schemas its files have: counted, read, and added up by Spark.

Choosing the range and its files belongs to `lakeproof.lake.planning`, writing the result to `lakeproof.lake.cycle`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from lakeproof.lake.columns import has_old_rows, in_lake
from lakeproof.lake.planning.schema_change import compare_schemas
from lakeproof.lake.planning.schema_changes import first_record, older_versions, proven_defaults
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.rows.file_rows import LandedRange
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.reader import Slice, count_changes
from lakeproof.lsn import Lsn
from lakeproof.schema import SchemaVersion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakeproof.lake.fold.net_change import ResolvedChanges
    from lakeproof.lake.rows.landing_rows import LandedChanges


@dataclass(frozen=True, slots=True)
class RangeSpan:
    """A part of the stream, (start, end], and the `_lp_ord` of row 0 of each of its segments by the segment's number."""

    start: Lsn
    end: Lsn
    first_ordinals: Mapping[int, int]


class TableRange:
    """A table's files of a range, and the counts of their changes.

    `before` is the table in the cut that the range follows, None if it was in none.
    """

    def __init__(
        self, chain: Chain, version: SchemaVersion, before: CutTable | None, files: Sequence[Slice], span: RangeSpan
    ) -> None:
        self.chain = chain
        self.version = version
        self.before = before
        self.schema = in_lake(version)
        pieces = [f for f in files if f.file.schema_id == version.id]
        self.landed = LandedRange(self.schema, pieces, span.first_ordinals, span.start, span.end)
        alike = len(pieces) == len(files)
        self.older = {} if alike else older_versions(chain, version, files, span.start, span.end)
        self.counts = count_changes(self.all_slices, span.start, span.end)

    @property
    def all_slices(self) -> list[Slice]:
        """The files of all schema versions."""
        return [*self.landed.slices, *(piece for pieces in self.older.values() for piece in pieces)]

    @property
    def needs_base(self) -> bool:
        """True if the table's rows before the range may be needed to add it up."""
        by_digest = not self.counts.inserts_only if self.schema.is_bag else has_old_rows(self.schema)
        return self.counts.unchanged > 0 or by_digest

    def read(self, session: SparkSession) -> LandedChanges:
        """Return the rows as a frame."""
        # Imported here, and below, because they import Spark.
        from lakeproof.lake.rows.landing_rows import LandedChanges, convert_rows, read_landed_changes

        frames = [read_landed_changes(session, self.landed)] if self.landed.slices else []
        for old, slices in self.older.items():
            rows = read_landed_changes(session, replace(self.landed, schema=in_lake(old), slices=slices))
            change = compare_schemas(old, self.version)
            # A table that was made in the stream enters with all that it ever had.
            own = self.before is not None and self.before.version.oid == self.version.oid
            first = first_record(self.chain, self.before) if own and self.before is not None else self.landed.start
            missing = proven_defaults(self.chain, first, change, self.landed.end)
            frames.append(convert_rows(session, rows, change, missing))
        return LandedChanges(self.schema, reduce(lambda one, other: one.unionByName(other), frames), self.counts)

    def resolve(self, session: SparkSession, base: DataFrame | None) -> ResolvedChanges:
        """Return the rows added up by Spark."""
        from lakeproof.lake.fold.net_change import resolve_range

        return resolve_range(session, self.read(session), base)
