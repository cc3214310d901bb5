"""Reading the lake as fresh as its landing: the newest cut, and the net change of what has landed since, at one position.

Tables at cuts belong to `open`, how far the landing can be read to `planning.landing.end`, adding changes up to `fold`.

    cut K ──────── P, the landing's end       rows at P = rows at K + net change of the landed rows in (K, P]

The changes are added up by the cycle's own fold, so they are exact for unchanged large values, moved keys, bags, truncates.
What has landed in a few seconds is added up in memory: a query of a table is one plan over its current rows and two small
relations. Nothing is written, and a cycle that takes the same segments meanwhile changes nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from lakeproof.errors import ConfigError
from lakeproof.lake.columns import column_names, in_lake, lake_types, quoted
from lakeproof.lake.delta.committer import Unsupported
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.fold.replay import empty_rows, with_net_change
from lakeproof.lake.fold.table_range import RangeSpan, TableRange
from lakeproof.lake.planning.landing.end import AT_A_CUT, LakeAtLanding, LandingEnd
from lakeproof.lake.read.arrow.open import landed_net
from lakeproof.lake.read.spark.lake_frame import LakeFrame
from lakeproof.lake.read.spark.opened import OpenedLake
from lakeproof.lake.records.cuts.choice import table_name
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.rows.change import AllRows, NetChange, Removed
from lakeproof.lake.rows.columns import pick, relation
from lakeproof.lake.rows.refusal import refusals_as_errors
from lakeproof.names import Layer, TableName
from lakeproof.schema import SchemaVersion


@dataclass(frozen=True, slots=True, repr=False)
class LandedLake(LakeAtLanding, OpenedLake):
    """A lake opened with Spark at the end of each source's landing: `ends`, on top of `cuts`."""

    ends: Mapping[str, LandingEnd]

    def table(
        self, source: str, table: TableName | str, *, layer: Layer = "current", hidden: bool = False
    ) -> LakeFrame:
        """A table as it is at the position, without the hidden `_lp_…` columns unless asked for.

        What has landed is read now, unless it is so much that Spark adds it up. Raises LakeError if there is no such table,
        or if the cut or the landed segments are not kept any more; TableError if the landed rows can't be applied.
        """
        if layer != "current":
            raise ConfigError("layer", "the landing's end has current tables alone", f"for history, {AT_A_CUT}")
        name, end = table_name(table), self.end(source)
        version, before = end.version(name), end.before(name)
        lake, spark = end.lake, self.spark
        rows = empty_rows(spark, in_lake(version)) if before is None else read_layer(spark, lake, name, before)
        if name in end.tables:
            rows = self._after(rows, end, version, before)
        return LakeFrame.of(rows if hidden else pick(rows, column_names(in_lake(version))))

    def _after(self, rows: DataFrame, end: LandingEnd, version: SchemaVersion, before: CutTable | None) -> DataFrame:
        """Return the table's rows after what has landed."""
        schema = in_lake(version)
        try:
            net = landed_net(end, version, before)
        except Unsupported:
            return self._after_by_spark(rows, end, version, before)
        if net is None:
            return rows
        removed: Removed[DataFrame] | AllRows | None = None
        match net.removed:
            case AllRows():
                removed = AllRows()
            case Removed(key, keys, null_safe) if keys.num_rows:
                removed = Removed(key, self._relation(schema, keys.select(list(key))), null_safe)
        images = None if net.images is None else self._relation(schema, net.images)
        return with_net_change(schema, rows, NetChange(removed, images))

    def _relation(self, schema: SchemaVersion, rows: pa.Table) -> DataFrame:
        types = lake_types(schema, rows.column_names)
        return relation(self.spark, rows, ", ".join(f"{quoted(name)} {kind}" for name, kind in types.items()))

    def _after_by_spark(
        self, rows: DataFrame, end: LandingEnd, version: SchemaVersion, before: CutTable | None
    ) -> DataFrame:
        """Return the table's rows after what has landed, which Spark adds up."""
        span = RangeSpan(end.tables[version.table].from_lsn, end.position, end.first_ordinals)
        with refusals_as_errors(str(version.table)):
            changes = TableRange(end.chain, version, before, end.verified(version.table), span)
            resolved = changes.resolve(self.spark, rows if changes.needs_base and before is not None else None)
            # What was kept for the fold is computed again where it is needed: nobody says when a reader is done.
            resolved.release()
            return with_net_change(in_lake(version), rows, resolved.net)
