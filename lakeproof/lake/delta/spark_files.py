"""Rows that Spark computes, as data files of a table that no commit names yet: plain Parquet in a folder of the table.

Making the commit belongs to `committer`, computing the rows to the callers. Only public names of Spark are used.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from lakeproof.lake.delta.committer import NewFile
from lakeproof.lake.delta.link_commit import entry_of, physical_names, statistics_columns
from lakeproof.lake.delta.links import PlacedFile, now_ms
from lakeproof.lake.rows.columns import col
from lakeproof.storage.folder import Folder
from lakeproof.storage.parquet import parquet_file


def write_by_spark(
    rows: DataFrame, path: str, number: int, fields: Sequence[Mapping[str, Any]], statistics: Sequence[str]
) -> list[NewFile]:
    """Let Spark write rows under a table's `fields` (of its schema text) into a new folder of the table; return the files.

    A column of the table that the rows lack reads as NULL. `number` is the cycle's, `statistics` as in a `TableSpec`.
    Evaluates the rows; a folder whose commit is never made is nobody's, as any file that no commit names.
    """
    return write_into(rows, path, f"cycle-{number:012d}-{uuid.uuid4().hex}", fields, statistics)


def write_into(
    rows: DataFrame, path: str, place: str, fields: Sequence[Mapping[str, Any]], statistics: Sequence[str]
) -> list[NewFile]:
    """Do the same for a new folder of the table that the caller names."""
    physical, table = physical_names(fields), Folder.at(path)
    types = {field["name"]: T._parse_datatype_json_value(field["type"]) for field in fields}  # noqa: SLF001  Delta's schema is Spark's
    given = {field.name: field.dataType for field in rows.schema.fields}
    chosen = [
        (col(name) if given[name].simpleString() == kind.simpleString() else col(name).cast(kind)).alias(physical[name])
        for name, kind in types.items()
        if name in given
    ]
    rows.select(*chosen).write.parquet(table.url_of(place))
    columns, files = statistics_columns(fields, statistics), list[NewFile]()
    for file in sorted(table.files(place), key=lambda each: each.key):
        if not file.key.endswith(".parquet") or file.key.rpartition("/")[2].startswith((".", "_")):
            continue
        with parquet_file(table.store, table.key_of(file.key)) as opened:
            footer = opened.metadata
        if footer.num_rows:
            files.append(NewFile(entry_of(PlacedFile(file.key, footer, file.bytes, now_ms()), columns)))
    return files
