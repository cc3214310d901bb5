"""The configuration: `load.load` reads `lakeproof.yaml` and returns a `Config`.

No server or lake is touched here, and no secret is read while loading.

    load.py          the file to a `Config`
    model.py         every key, default and limit
    section/         sections of their own, and the base of each
    document.py      the YAML, with line numbers
    mistakes.py      all mistakes as one error
    sections.py      values that need more than a type
    values.py        checks of single values
    secret.py        passwords, read when used
    table_names.py   names and patterns of tables, and a selection by them
    location.py      where a lake is, and how its store is reached
    view_graph.py    which view reads which, in what order; views that are set aside
"""

__all__ = ["load", "location", "mistakes", "model", "secret", "section", "table_names", "values", "view_graph"]
