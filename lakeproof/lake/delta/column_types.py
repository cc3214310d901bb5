"""The types of a Delta table's columns: in the log's schema text, and by the names that Spark's SQL has for them.

Changing columns does not belong here (`schema.py`), nor the types of PostgreSQL (`lakeproof.values.types`). No Spark runs
here: a catalog asks when it is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lakeproof.hidden_columns import PUT_AWAY
from lakeproof.lake.delta.log import NO_VERSION, newest_version
from lakeproof.lake.delta.reader_features import PHYSICAL_NAME, table_state
from lakeproof.values.types import LAKE_TYPES

_IN_SPARK = {lake_type.in_log: spark for spark, lake_type in LAKE_TYPES.items()}
_ARRAY = "array<"


def in_log(spark_type: str) -> Any:
    """Return a type, as `lakeproof.values.types` names it, in the form of the log's schema text; KeyError for another."""
    if spark_type.startswith(_ARRAY):
        return {"type": "array", "elementType": in_log(spark_type[len(_ARRAY) : -1]), "containsNull": True}
    return spark_type if spark_type.startswith("decimal(") else LAKE_TYPES[spark_type].in_log


def in_spark(type_in_log: str | dict[str, Any]) -> str:
    """Return the name that Spark's SQL has for a type of the log's schema text."""
    if isinstance(type_in_log, str):
        # A string with a collation is a string.
        name = type_in_log.partition(" collate")[0]
        return _IN_SPARK.get(name, name)
    match type_in_log["type"]:
        case "array":
            return f"array<{in_spark(type_in_log['elementType'])}>"
        case "map":
            return f"map<{in_spark(type_in_log['keyType'])},{in_spark(type_in_log['valueType'])}>"
        case "struct":
            fields = [f"{field['name']}:{in_spark(field['type'])}" for field in type_in_log["fields"]]
            return f"struct<{','.join(fields)}>"
        case other:
            return str(other)


def column_types(path: str, version: int | None = None) -> dict[str, str]:
    """Return the columns of a version, or of the newest, with their types; nothing if there is no table.

    Raises LogGapError if its log can't be read.
    """
    version = newest_version(path) if version is None else version
    if version == NO_VERSION:
        return {}
    fields = json.loads(table_state(path, version)["metaData"]["schemaString"])["fields"]
    return {field["name"]: in_spark(field["type"]) for field in fields if not field["name"].startswith(PUT_AWAY)}


def new_fields(columns: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return columns, by name with their Spark types, as the fields of a schema text."""
    return [{"name": n, "type": in_log(kind), "nullable": True, "metadata": {}} for n, kind in columns.items()]


def in_files(kind: Any) -> Any:
    """Return a type of the log's schema text with the names that fields inside it have in data files."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        fields = [
            {**f, "name": (f.get("metadata") or {}).get(PHYSICAL_NAME, f["name"]), "type": in_files(f["type"])}
            for f in kind["fields"]
        ]
        return {**kind, "fields": fields}
    inside = [name for name in ("elementType", "keyType", "valueType") if name in kind]
    return {**kind, **{name: in_files(kind[name]) for name in inside}}
