"""The configuration: `load.load` reads `lakeproof.yaml` and returns a `Config`.

No server or lake is touched here, and no secret is read while loading.

    load.py      the file to a `Config`              model.py        every key, default and limit
    document.py  the YAML, with line numbers         mistakes.py     all mistakes as one error
    sections.py  values that need more than a type   values.py       checks of single values
    secret.py    passwords, read when used           selection.py    the tables that are selected
    table_names.py  names and patterns of tables     section.py      the base of every section
    upkeep.py    compaction and retention            metrics.py      metrics, and the addresses that serve them
    dagster.py   how a location starts                alerts.py     who is notified of problems
    location.py  where a lake is, and how its store is reached                sql_catalog.py  names in a SQL catalog
    spark.py     where tasks run                      view_graph.py   which view reads which, and in what order
    external_table.py  tables outside of the lake
    compute.py   where the Spark work of Dagster is done
"""

__all__ = ["load", "location", "mistakes", "model", "secret", "section", "table_names", "values", "view_graph"]
