"""SQL views of a cut: a database of views over the current tables, without hidden columns, for SQL, BI and notebooks.

Which cut belongs to `open`. The lake itself is not changed: views live in the session's catalog.

Each view names the Delta version that the cut names, so all views of one `register` show one and the same position, whatever
is written meanwhile. They are replaced one after the other: who needs the change to another cut in one step registers
it under another schema's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pyspark.sql import SparkSession

from lakeproof.errors import ConfigError
from lakeproof.lake.columns import column_names, in_lake, quoted
from lakeproof.lake.read.open import OpenedLake, table_name
from lakeproof.lake.records.documents import Cut
from lakeproof.names import TableName
from lakeproof.storage.paths import LakePaths

# What Spark takes as a view's name in its own catalog.
_ODD = re.compile(r"[^A-Za-z0-9_]")


def register(
    opened: OpenedLake,
    schema: str,
    catalog: str | None = None,
    *,
    source: str | None = None,
    tables: Iterable[TableName | str] | None = None,
) -> Mapping[TableName, str]:
    """Make or replace a view for each table of a source (or of `tables`) in `catalog.schema`; gives their SQL names.

    A view is named after its table; outside of `public` the schema stands before it, and characters that SQL names don't
    have become `_`. Raises ConfigError where two tables would have one name, LakeError for a table that the cut does not
    have. Whether views outlive the session is the catalog's matter: Spark's own forgets them with it.
    """
    if source is None and len(opened.cuts) != 1:
        raise ConfigError("register", f"the lake has {len(opened.cuts)} sources", "name one of them")
    name = next(iter(opened.cuts)) if source is None else source
    cut = opened.cut(name)
    chosen = sorted(cut.tables) if tables is None else [table_name(t) for t in tables]
    place = ".".join(quoted(part) for part in (catalog, schema) if part is not None)
    names = _names(chosen)
    opened.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {place}")
    for table in chosen:
        view = f"{place}.{quoted(names[table])}"
        _view(opened.spark, LakePaths(opened.lake, name), cut, table, view)
        names[table] = view
    return names


def _names(tables: Iterable[TableName]) -> dict[TableName, str]:
    names: dict[TableName, str] = {}
    taken: dict[str, TableName] = {}
    for table in tables:
        full = table.name if table.schema == "public" else f"{table.schema}_{table.name}"
        names[table] = name = _ODD.sub("_", full)
        other = taken.setdefault(name.casefold(), table)
        if other != table:
            raise ConfigError(f"view {name}", f"{other} and {table} would both have this name", "register one of them")
    return names


def _view(spark: SparkSession, paths: LakePaths, cut: Cut, table: TableName, view: str) -> None:
    at = cut.table(table, paths.source)
    columns = ", ".join(quoted(c) for c in column_names(in_lake(at.version)))
    told = {
        "lakeproof.source": paths.source,
        "lakeproof.cut": str(cut.number),
        "lakeproof.position": str(at.at_lsn),
        "lakeproof.held": str(table in cut.held).lower(),
    }
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in told.items())
    spark.sql(
        f"CREATE OR REPLACE VIEW {view} TBLPROPERTIES ({properties}) AS SELECT {columns}"  # noqa: S608  every name is quoted
        f" FROM delta.{quoted(paths.url(paths.current(table)))} VERSION AS OF {at.current_version}"
    )
