"""Reading the lake: every table of every source at one cut of its source (invariant consistent-cut).

Writing belongs to `cycle`. Tables are opened when they are asked for, at the Delta version that the cut names; what is
written meanwhile is not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from wal2delta.config.model import Config
from wal2delta.errors import ConfigError, LakeError
from wal2delta.lake.columns import column_names, in_lake, pick
from wal2delta.lake.documents import Cut
from wal2delta.lake.records import cut_at, newest_cut, read_cut
from wal2delta.landing.lake_paths import LakePaths
from wal2delta.landing.store import Store, open_store
from wal2delta.lsn import Lsn
from wal2delta.names import CycleNumber, TableName

Layer: TypeAlias = Literal["current", "history"]
At: TypeAlias = Literal["newest"] | Lsn | int


@dataclass(frozen=True, slots=True)
class OpenedLake:
    """A lake pinned at `cuts`, one per source that has any; `cuts[source].number` and `.position` say which were given."""

    spark: SparkSession
    lake: str
    cuts: Mapping[str, Cut]

    def position(self, source: str) -> Lsn:
        """Where the source's tables stand, but the held ones; raises LakeError where the lake has no cut of it."""
        return self._cut(source).position

    def table(
        self, source: str, table: TableName | str, *, layer: Layer = "current", hidden: bool = False
    ) -> DataFrame:
        """A table as it is at the cut, without the hidden `_w2d_…` columns unless asked for.

        `table` may be written `schema.table`. Raises LakeError where the cut does not have the table.
        """
        name = table if isinstance(table, TableName) else _parsed(table)
        at = self._cut(source).table(name, source)
        paths = LakePaths(self.lake, source)
        key, version = paths.current(name), at.current_version
        if layer == "history":
            key, version = paths.history(name), at.history_version
        frame = self.spark.read.format("delta").option("versionAsOf", version).load(paths.url(key))
        return frame if hidden else pick(frame, column_names(in_lake(at.version)))

    def _cut(self, source: str) -> Cut:
        cut = self.cuts.get(source)
        if cut is None:
            raise LakeError(
                f"{source}: cuts", "the lake has no cut of this source", f"run `wal2delta compact {source}`"
            )
        return cut


def open_lake(spark: SparkSession, config: Config, at: At | Mapping[str, At] = "newest") -> OpenedLake:
    """Open the lake at the newest cuts, at the newest cut at or before a position, or at a cut's number.

    `at` may be given per source; sources that it does not name are opened at their newest cut. A position or number belongs
    to one source: with several sources it must say which. Raises ConfigError for an ambiguous `at`, LakeError where there is
    no such cut.
    """
    wanted = _wanted(config, at)
    store = open_store(config.lake)
    cuts = {}
    for source in config.sources:
        cut = _cut(store, LakePaths(config.lake, source), wanted.get(source, "newest"))
        if cut is not None:
            cuts[source] = cut
    return OpenedLake(spark, config.lake, cuts)


def _wanted(config: Config, at: At | Mapping[str, At]) -> Mapping[str, At]:
    if isinstance(at, Mapping):
        for source in at:
            config.source(source)
        return at
    if at == "newest":
        return {}
    if len(config.sources) > 1:
        raise ConfigError("at", "a position or cut belongs to one source", "write {source: position}")
    return dict.fromkeys(config.sources, at)


def _cut(store: Store, paths: LakePaths, at: At) -> Cut | None:
    if at == "newest":
        return newest_cut(store, paths)
    if isinstance(at, Lsn):
        return cut_at(store, paths, at)
    return read_cut(store, paths, CycleNumber(at))


def _parsed(text: str) -> TableName:
    schema, dot, name = text.partition(".")
    if not dot or not schema or not name:
        raise ConfigError(f"table {text[:80]}", "is not schema.table", "give a TableName where a name has a dot")
    return TableName(schema, name)
