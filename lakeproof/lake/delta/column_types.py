"""The types of a Delta table's columns: Spark's names for them, and the form that they have in the log's schema text.

The types of PostgreSQL do not belong here (`lakeproof.values.types`), nor does reading a schema (`state`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_IN_LOG: Mapping[str, str] = {
    "boolean": "boolean",
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}
_IN_SPARK = {in_log: spark for spark, in_log in _IN_LOG.items()}
_ARRAY = "array<"


def in_log(spark_type: str) -> Any:
    """Return a type, as `lakeproof.values.types` names it, in the form of the log's schema text; KeyError for another."""
    if spark_type.startswith(_ARRAY):
        return {"type": "array", "elementType": in_log(spark_type[len(_ARRAY) : -1]), "containsNull": True}
    return spark_type if spark_type.startswith("decimal(") else _IN_LOG[spark_type]


def in_spark(type_in_log: Any) -> str:
    """Return the name that Spark has for a type of the log's schema text; of a nested type its kind alone."""
    if isinstance(type_in_log, str):
        # A string with a collation is a string.
        name = type_in_log.partition(" ")[0]
        return _IN_SPARK.get(name, name)
    return str(type_in_log["type"])


def new_fields(columns: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return columns, by name with their Spark types, as the fields of a schema text."""
    return [{"name": n, "type": in_log(kind), "nullable": True, "metadata": {}} for n, kind in columns.items()]
