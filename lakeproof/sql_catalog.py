"""Keeps the schemas of a SQL catalog at the newest cut: a name for each current, history and view of the lake.

The names are in `lakeproof.yaml` (`catalog`), reading a lake without a catalog in `lakeproof.lake.read`. The lake itself
is not changed, and no data file is a catalog's: its tables are external.

A cut does not wait for a catalog and does not fail with it: the next registration makes up for it. `CREATE OR REPLACE TABLE`
with a LOCATION is never used, since it would empty a Delta table.

    schema      is made by this, and says so in its properties; one that somebody else made is refused unless it is empty
    the mark    a property with the number of the cut, written last: the next registration names only what has changed since,
                or begins anew if there is no mark. So a registration that was cut off is made up for
    a name      of a view is replaced in one statement by the next cut's; those of a schema follow one after the other
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from lakeproof.config.model import Config
from lakeproof.config.section.sql_catalog import CatalogConfig
from lakeproof.errors import ConfigError, LakeproofError
from lakeproof.events import Event, Report, counted
from lakeproof.lake.columns import column_names, history_columns, in_lake, quoted
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.store import newest_cut, read_cut
from lakeproof.lake.records.views.cuts import newest_first, newest_view_cut_number, view_path
from lakeproof.lake.spark.driver import java_errors
from lakeproof.lake.spark.failures import reason_of
from lakeproof.lake.spark_on_demand import AnySpark, SparkOnDemand
from lakeproof.names import CycleNumber, Layer
from lakeproof.storage.open import open_store
from lakeproof.storage.source_lake import SourceLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_OWNER, _MARK = "lakeproof.owner", "lakeproof.mark"
_PROPERTY = re.compile(r"\(([\w.]+),([^()]*)\)")


@dataclass(frozen=True, slots=True)
class _Named:
    """A Delta table that gets a name: its URL, the version that it is shown at, and its columns for SQL."""

    url: str
    version: int
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Schema:
    """A schema of the catalog: `place` is its SQL name, `owner` says what of which lake it has."""

    spark: SparkSession
    place: str
    owner: str
    form: Literal["views", "tables"]

    def bring_to(
        self, tables: Mapping[str, _Named], mark: str, earlier: Callable[[str], Mapping[str, _Named] | None]
    ) -> int:
        """Give these tables their names, take those of others away, and return how many names changed.

        `earlier` returns the tables that had names when the schema was at a mark, None if that is not known any more.
        """
        properties = self._owned_properties()
        if properties.get(_MARK) == mark:
            return 0
        last = earlier(properties[_MARK]) if _MARK in properties else None
        present = self._present()
        stale = [name for name in present if name not in tables or present[name] != self.form]
        changed = [
            name for name, table in tables.items()
            if name not in present or name in stale or (self.form == "views" and (last or {}).get(name) != table)
        ]  # fmt: skip
        for name in stale:
            self.spark.sql(f"DROP {'VIEW' if present[name] == 'views' else 'TABLE'} {self._sql(name)}")
        for name in changed:
            self._name(name, tables[name])
        self.spark.sql(f"ALTER SCHEMA {self.place} SET DBPROPERTIES ('{_MARK}' = {_text(mark)})")
        return len(stale) + len(changed)

    def _owned_properties(self) -> Mapping[str, str]:
        """Return the properties of the schema, which is made if it is missing; raises ConfigError if it is another's."""
        self.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {self.place} WITH DBPROPERTIES ('{_OWNER}' = {_text(self.owner)})")
        described = self.spark.sql(f"DESCRIBE SCHEMA EXTENDED {self.place}").collect()
        properties = dict(_PROPERTY.findall(next((row[1] for row in described if row[0] == "Properties"), "")))
        if properties.get(_OWNER) == self.owner:
            return properties
        owner = properties.get(_OWNER)
        if owner is not None or self._present():
            reason = "it has tables or views of others" if owner is None else f"it has {owner}"
            raise ConfigError(f"schema {self.place}", reason, "name another schema in `catalog`, or drop this one")
        self.spark.sql(f"ALTER SCHEMA {self.place} SET DBPROPERTIES ('{_OWNER}' = {_text(self.owner)})")
        return {}

    def _present(self) -> dict[str, Literal["views", "tables"]]:
        """Return the names that the schema has, in lower case as catalogs keep them, and which are views."""
        views = {row["viewName"].lower() for row in self.spark.sql(f"SHOW VIEWS IN {self.place}").collect()}
        tables = self.spark.sql(f"SHOW TABLES IN {self.place}").collect()
        names = {row["tableName"].lower() for row in tables if not row["isTemporary"]}
        return {name: "views" if name in views else "tables" for name in names | views}

    def _name(self, name: str, table: _Named) -> None:
        if self.form == "tables":
            self.spark.sql(f"CREATE TABLE {self._sql(name)} USING delta LOCATION {_text(table.url)}")
            return
        columns = ", ".join(quoted(column) for column in table.columns)
        self.spark.sql(
            f"CREATE OR REPLACE VIEW {self._sql(name)} AS SELECT {columns}"  # noqa: S608  every name is quoted
            f" FROM delta.{quoted(table.url)} VERSION AS OF {table.version}"
        )

    def _sql(self, name: str) -> str:
        return f"{self.place}.{quoted(name)}"


def name_cut(config: Config, source: str, spark: AnySpark, report: Report) -> None:
    """Bring the names of a source's tables to its newest cut; a failure is an event, and the next call makes up for it."""
    catalog, lake = config.catalog, SourceLake.open(config.location, source)
    cut = None if catalog is None else newest_cut(lake)
    if catalog is None or cut is None:
        return

    def earlier(mark: str, layer: Layer) -> Mapping[str, _Named] | None:
        if not mark.isdecimal() or not lake.store.exists(lake.paths.cut(CycleNumber(int(mark)))):
            return None
        return _tables(lake, read_cut(lake, CycleNumber(int(mark))), layer)

    session = SparkOnDemand.of(spark).get()
    for layer, name in catalog.schemas(source).items():
        schema = _schema(session, catalog, name, f"{layer} tables of {source} in the lake {config.lake}")
        tables = partial(_tables, lake, cut, layer)
        _try(report, schema, tables, str(int(cut.number)), partial(earlier, layer=layer))


def name_views(config: Config, spark: AnySpark, report: Report) -> None:
    """Bring the names of the lake's views to the newest cut of each; failures as above."""
    catalog = config.catalog
    if catalog is None or catalog.views is None:
        return
    from lakeproof.lake.delta.versions import read_view

    store, session = open_store(config.location), SparkOnDemand.of(spark).get()
    schema = _schema(session, catalog, catalog.views, f"views of the lake {config.lake}")

    def tables() -> dict[str, _Named]:
        named: dict[str, _Named] = {}
        for cut in newest_first(store):
            if cut.view in config.views and cut.view not in named:
                columns = tuple(read_view(session, store, cut).columns)
                named[cut.view] = _Named(view_path(store, cut.view), cut.delta_version, columns)
            if len(named) == len(config.views):
                break
        return named

    _try(report, schema, tables, str(int(newest_view_cut_number(store))), lambda _: None)


def _schema(spark: SparkSession, catalog: CatalogConfig, name: str, owner: str) -> _Schema:
    place = ".".join(quoted(part) for part in (catalog.name, name) if part is not None)
    return _Schema(spark.newSession(), place, owner, catalog.form)


def _try(
    report: Report,
    schema: _Schema,
    tables: Callable[[], Mapping[str, _Named]],
    mark: str,
    earlier: Callable[[str], Mapping[str, _Named] | None],
) -> None:
    """Report what changed, or why nothing could: the lake is right without its names."""
    try:
        changed = schema.bring_to(tables(), mark, earlier)
    except java_errors(LakeproofError) as error:
        message = f"{schema.place}: the catalog does not have the newest cut: {reason_of(error)}"
        report(Event("catalog.failed", message, {"schema": schema.place, "reason": reason_of(error)}))
        return
    if changed:
        message = f"{schema.place}: {counted(changed, 'name')} brought to cut {mark}"
        report(Event("catalog.named", message, {"schema": schema.place, "names": changed, "cut": int(mark)}))


def _tables(lake: SourceLake, cut: Cut, layer: Layer) -> dict[str, _Named]:
    # Imported here, and above, because it imports Spark.
    from lakeproof.lake.read.spark.open import sql_names

    names = sql_names(cut.tables)
    named = {}
    for table, pinned in cut.tables.items():
        of_source, paths = in_lake(pinned.version), lake.paths
        if layer == "current":
            place, version, columns = paths.current(table), pinned.current_version, column_names(of_source)
        else:
            place, version, columns = paths.history(table), pinned.history_version, history_columns(of_source)
        named[names[table].lower()] = _Named(lake.url(place), version, tuple(columns))
    return named


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
