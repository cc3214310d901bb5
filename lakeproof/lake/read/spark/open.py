"""Opening the lake with Spark: every table of every source at one cut of its source, or as fresh as its landing.

Positions between cuts belong to `as_of`, reading without Spark to
`lakeproof.lake.read.arrow`, how far the landing can be read to `planning.landing.end`, adding changes up to `fold`.

A table is opened on request, at the Delta version that its cut names; later commits are not seen. It is a DataFrame that
gives its rows as Arrow and pandas, as those without Spark do. What selects columns and rows returns such a frame again;
anything else that a DataFrame does (joins, groups, windows) returns Spark's own.

    cut K ──────── P, the landing's end       rows at P = rows at K + net change of the landed rows in (K, P]

What has landed is added up by the cycle's own fold, so it is exact for unchanged large values, moved keys, bags, truncates:
in memory, if it is what lands in a few seconds, so that a query of a table is one plan over its current rows and two small
relations. Nothing is written, and a cycle that takes the same segments meanwhile changes nothing here.

`register` makes SQL views of an opened lake's tables in the session's catalog, for SQL, BI and notebooks. Each names the
Delta version that the cut names, so all views of one call show the same position, whatever is written meanwhile. They are
replaced one after the other: to change to another cut in one step, register it under another schema's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config, location_of
from lakeproof.errors import ConfigError
from lakeproof.lake.columns import column_names, in_lake, lake_types, quoted
from lakeproof.lake.delta.versions import read_layer, read_view
from lakeproof.lake.fold.history import empty_rows, with_net_change
from lakeproof.lake.fold.net_change import resolve_range
from lakeproof.lake.fold.unchanged_values import completing
from lakeproof.lake.planning.landing.end import AT_A_CUT, LANDING, LakeAtLanding, LandingEnd, cuts_and_ends
from lakeproof.lake.read.arrow.open import ROWS_MAX, landed_changes, landed_net, to_pandas, too_many
from lakeproof.lake.records.cuts.choice import NEWEST, At, LakeAtCuts, check_kept, cuts_at, only_source, table_name
from lakeproof.lake.records.documents import Cut, CutTable
from lakeproof.lake.rows.change import AllRows, NetChange, Removed, Unsupported
from lakeproof.lake.rows.columns import pick, relation
from lakeproof.lake.rows.landing_rows import read_range
from lakeproof.lake.rows.refusal import refusals_as_errors
from lakeproof.names import Layer, TableName
from lakeproof.schema import SchemaVersion
from lakeproof.storage.open import open_store
from lakeproof.storage.source_lake import SourceLake

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # it ships no types

_UTC = "UTC"


def _again(name: str) -> Callable[..., Any]:
    """Return Spark's method of that name, whose result is a lake's frame again."""
    method = getattr(ClassicDataFrame, name)

    def of_lake(self: LakeFrame, *arguments: Any, **named: Any) -> LakeFrame:
        return LakeFrame.of(method(self, *arguments, **named))

    return of_lake


class LakeFrame(ClassicDataFrame):
    """A DataFrame of the lake; `arrow` and `pandas` are those of `lakeproof.read`'s rows."""

    @classmethod
    def of(cls, frame: DataFrame) -> LakeFrame:
        """Return the same rows; nothing is read."""
        return cls(frame._jdf, frame.sparkSession)  # noqa: SLF001  as Spark's own methods make frames

    select, where, filter = _again("select"), _again("where"), _again("filter")
    drop, limit, orderBy = _again("drop"), _again("limit"), _again("orderBy")  # noqa: N815  Spark's name

    def arrow(self, rows_max: int | None = ROWS_MAX) -> pa.Table:
        """Return all rows in memory with exact types; raises LakeError for more than `rows_max` (None: any number)."""
        frame = self if rows_max is None else ClassicDataFrame.limit(self, rows_max + 1)
        table = frame.toArrow()
        if rows_max is not None and table.num_rows > rows_max:
            raise too_many(rows_max)
        # Spark writes the session's zone, which is UTC by another name.
        return table.cast(pa.schema([_in_utc(field) for field in table.schema]))

    def pandas(self, rows_max: int | None = ROWS_MAX) -> pd.DataFrame:
        """Return all rows in memory as a frame whose columns have Arrow's types; raises as `arrow`, and without pandas."""
        return to_pandas(self.arrow(rows_max))


def _in_utc(field: pa.Field) -> pa.Field:
    if pa.types.is_timestamp(field.type) and field.type.tz is not None:
        return field.with_type(pa.timestamp(field.type.unit, _UTC))
    return field


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
        with end.reading(name):
            rows = self._after(rows, end, version, before) if name in end.tables else rows
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
        with refusals_as_errors(str(version.table)):
            changes = landed_changes(end, version, before)
            base = rows if changes.needs_base and before is not None else None
            resolved = resolve_range(self.spark, read_range(self.spark, changes), base)
            # What was kept for the fold is computed again where it is needed: nobody says when a reader is done.
            resolved.release()
            return with_net_change(in_lake(version), rows, resolved.net)


@overload
def open_lake(
    spark: SparkSession,
    lake: Config | LakeLocation | str | Path,
    at: Literal["landing"],
    *,
    group: str | None = None,
) -> LandedLake: ...
@overload
def open_lake(
    spark: SparkSession,
    lake: Config | LakeLocation | str | Path,
    at: At | Mapping[str, At] = NEWEST,
    *,
    group: str | None = None,
) -> OpenedLake: ...
def open_lake(
    spark: SparkSession,
    lake: Config | LakeLocation | str | Path,
    at: At | Mapping[str, At] = NEWEST,
    *,
    group: str | None = None,
) -> OpenedLake:
    """Open the lake of a configuration, or in a folder: at the newest cuts, or at the newest ones that do not go past `at`.

    `at` is `newest`, a position (an `Lsn` or its text), a cut's number (that very cut), or a time: then the cut has nothing
    that the source committed later, by the source's clock. It may be a mapping from sources; sources that it does not name
    are opened at their newest cut. A position or number belongs to one source: with several sources give a mapping. Raises
    ConfigError for an ambiguous `at`, LakeError if there is no such cut.

    With `group`, the sources of that group alone are opened, at the cuts that one cut of the group names: all at one
    position. `at` is then one value for all, a number that of the group's cut.

    `landing` gives a `LandedLake`: the newest cut and what has landed since, so that a commit is seen about a second later.
    Raises as `cuts_and_ends`.
    """
    place = location_of(lake)
    if at == LANDING:
        return LandedLake(spark, place, *cuts_and_ends(lake, group))
    return OpenedLake(spark, place, cuts_at(lake, at, group))


# Characters that Spark refuses in a view's name in its own catalog.
_ODD = re.compile(r"[^A-Za-z0-9_]")


def register(
    opened: OpenedLake,
    schema: str,
    catalog: str | None = None,
    *,
    source: str | None = None,
    tables: Iterable[TableName | str] | None = None,
) -> Mapping[TableName, str]:
    """Make or replace a view for each table of a source (or of `tables`) in `catalog.schema`; returns their SQL names.

    A view is named after its table; outside of `public` the schema is prefixed, and characters that SQL names can't have
    become `_`. Raises ConfigError if two tables would get the same name, LakeError for a table that the cut does not have.
    Spark's own catalog forgets the views with the session; others may keep them.
    """
    if isinstance(opened, LandedLake):
        remedy = "open the lake at a cut, or use `createOrReplaceTempView` of the tables"
        raise ConfigError("register", "SQL views show cuts, not the landing's end", remedy)
    name = only_source("register", opened.sources, source)
    cut = opened.cut(name)
    chosen = sorted(cut.tables) if tables is None else [table_name(t) for t in tables]
    place = ".".join(quoted(part) for part in (catalog, schema) if part is not None)
    names = sql_names(chosen)
    opened.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {place}")
    for table in chosen:
        view = f"{place}.{quoted(names[table])}"
        _view(opened.spark, SourceLake.open(opened.lake, name), cut, table, view)
        names[table] = view
    return names


def sql_names(tables: Iterable[TableName]) -> dict[TableName, str]:
    """Return the name of each table in a schema; raises ConfigError if two tables would get the same one."""
    names: dict[TableName, str] = {}
    taken: dict[str, TableName] = {}
    for table in tables:
        full = table.name if table.schema == "public" else f"{table.schema}_{table.name}"
        names[table] = name = _ODD.sub("_", full)
        other = taken.setdefault(name.casefold(), table)
        if other != table:
            raise ConfigError(f"view {name}", f"{other} and {table} would both have this name", "register one of them")
    return names


def _view(spark: SparkSession, lake: SourceLake, cut: Cut, table: TableName, view: str) -> None:
    pinned = cut.table(table, lake.source)
    columns = ", ".join(quoted(c) for c in column_names(in_lake(pinned.version)))
    values = {
        "lakeproof.source": lake.source,
        "lakeproof.cut": str(cut.number),
        "lakeproof.position": str(pinned.at_lsn),
        "lakeproof.held": str(table in cut.held).lower(),
    }
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in values.items())
    spark.sql(
        f"CREATE OR REPLACE VIEW {view} TBLPROPERTIES ({properties}) AS SELECT {columns}"  # noqa: S608  every name is quoted
        f" FROM delta.{quoted(lake.url(lake.paths.current(table)))} VERSION AS OF {pinned.current_version}"
    )
