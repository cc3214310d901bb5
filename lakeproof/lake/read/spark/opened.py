"""A lake that has been opened with Spark at cuts: its tables at the Delta versions that the cuts name.

Choosing the cuts belongs to `open`, SQL views of a session to `register`, reading without Spark to `frames`. A table is
opened on request; later commits are not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from lakeproof.config.location import LakeLocation
from lakeproof.lake.columns import column_names, in_lake
from lakeproof.lake.delta.versions import read_layer, read_view
from lakeproof.lake.fold.unchanged_values import completing
from lakeproof.lake.read.spark.lake_frame import LakeFrame
from lakeproof.lake.records.cuts.choice import LakeAtCuts, check_kept, table_name
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.rows.columns import pick
from lakeproof.names import Layer, TableName
from lakeproof.storage.open import open_store
from lakeproof.storage.source_lake import SourceLake


@dataclass(frozen=True, slots=True, repr=False)
class OpenedLake(LakeAtCuts):
    """A lake pinned at `cuts`, one per source that has any.

    `cuts[source]` is the cut: its number, position, commit time and held tables.
    """

    spark: SparkSession
    lake: LakeLocation
    cuts: Mapping[str, Cut]

    def table(
        self, source: str, table: TableName | str, *, layer: Layer = "current", hidden: bool = False
    ) -> LakeFrame:
        """A table as it is at the cut, without the hidden `_lp_…` columns unless asked for; a DataFrame of Spark's.

        `table` may be written `schema.table`. Raises LakeError if the cut does not have the table. History's rows are
        complete, which costs reading the large values that they left unchanged.
        """
        name = table_name(table)
        cut_table = self.cut(source).table(name, source)
        lake = SourceLake.open(self.lake, source)
        check_kept(lake, self.cut(source))
        frame = read_layer(self.spark, lake, name, cut_table, layer)
        if layer == "history":
            frame = completing(cut_table, frame)(frame)
        return LakeFrame.of(frame if hidden else pick(frame, column_names(in_lake(cut_table.version))))

    def view(self, name: str) -> LakeFrame:
        """Return a view's rows as they are at the opened cuts, without hidden columns; raises as `view_cut`."""
        return LakeFrame.of(read_view(self.spark, open_store(self.lake), self.view_cut(name)))
