"""SQL views of a cut: a database of views over the current tables, without hidden columns, for SQL, BI and notebooks.

Choosing the cut belongs to `open`. The lake itself is not changed: the views are in the session's catalog.

Each view names the Delta version that the cut names, so all views of one `register` show the same position, whatever is
written meanwhile. They are replaced one after the other: to change to another cut in one step, register it under another
schema's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pyspark.sql import SparkSession

from lakeproof.errors import ConfigError
from lakeproof.lake.columns import column_names, in_lake, quoted
from lakeproof.lake.read.spark.open import LandedLake, OpenedLake
from lakeproof.lake.records.cuts.choice import table_name
from lakeproof.lake.records.documents import Cut
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake

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
    if source is None and len(opened.cuts) != 1:
        raise ConfigError("register", f"the lake has {len(opened.cuts)} sources", "name one of them")
    name = next(iter(opened.cuts)) if source is None else source
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
