"""The columns of a Delta table with the names that Spark's SQL has for their types, from the table's log alone.

Changing them does not belong here (`schema.py`). No Spark runs here: a catalog asks when it is loaded.
"""

from __future__ import annotations

import json
from typing import Any

from lakeproof.hidden_columns import PUT_AWAY
from lakeproof.lake.delta.log import NO_VERSION, newest_version
from lakeproof.lake.delta.reader_features import table_state

# Delta's names are those of Spark's JSON; these differ from SQL's.
_IN_SQL = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def column_types(path: str, version: int | None = None) -> dict[str, str]:
    """Return the columns of a version, or of the newest, with their types; nothing if there is no table.

    Raises LogGapError if its log can't be read.
    """
    version = newest_version(path) if version is None else version
    if version == NO_VERSION:
        return {}
    fields = json.loads(table_state(path, version)["metaData"]["schemaString"])["fields"]
    return {field["name"]: _in_sql(field["type"]) for field in fields if not field["name"].startswith(PUT_AWAY)}


def _in_sql(kind: str | dict[str, Any]) -> str:
    if isinstance(kind, str):
        return _IN_SQL.get(kind, kind)
    match kind["type"]:
        case "array":
            return f"array<{_in_sql(kind['elementType'])}>"
        case "map":
            return f"map<{_in_sql(kind['keyType'])},{_in_sql(kind['valueType'])}>"
        case "struct":
            fields = [f"{field['name']}:{_in_sql(field['type'])}" for field in kind["fields"]]
            return f"struct<{','.join(fields)}>"
        case other:
            return str(other)
