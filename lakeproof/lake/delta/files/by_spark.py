"""Rows that Spark computes, as data files of a table that no commit names yet: plain Parquet in a folder of the table.

Making the commit belongs to `committer`, computing the rows to the callers. Only public names of Spark are used.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from lakeproof.errors import InvariantError
from lakeproof.hidden_columns import scratch
from lakeproof.lake.delta.committer import AddedFile
from lakeproof.lake.delta.files.data_files import data_file, deleted_rows
from lakeproof.lake.delta.files.links import PlacedFile
from lakeproof.lake.delta.link_commit import entry_of, statistics_columns
from lakeproof.lake.delta.log.commits import Action, LogField, LogType, now_ms, physical_names
from lakeproof.lake.delta.log.protocol import in_files, statistics_of
from lakeproof.lake.delta.log.state import TableState
from lakeproof.lake.rows.change import Unsupported
from lakeproof.lake.rows.columns import col, relation
from lakeproof.storage.folder import Folder
from lakeproof.storage.parquet import parquet_file

# A task's one file gets its name when the task ends, and not once more when the job does: on S3 that is a copy of it. Nobody
# reads the folder before it is listed for the commit.
_OPTIONS = {
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "maxRecordsPerFile": "0",
}
_FILE, _ROW = scratch("file"), scratch("at")
# What Delta's schema can have; Parquet takes more.
_TYPES = (
    T.ArrayType,
    T.BinaryType,
    T.BooleanType,
    T.DateType,
    T.DecimalType,
    T.FractionalType,
    T.IntegralType,
    T.MapType,
    T.StringType,
    T.StructType,
    T.TimestampNTZType,
    T.TimestampType,
)


def schema_fields(rows: DataFrame) -> list[LogField]:
    """Return the columns of rows as a table's schema text has them, each of them nullable; raises `Unsupported`."""
    for field in rows.schema.fields:
        _check_type(field.name, field.dataType)
    return [{**_nullable(field.jsonValue()), "metadata": {}} for field in rows.schema.fields]


def _type(in_log: LogType) -> T.DataType:
    """Return a type of the log's schema text: Delta's schema is Spark's."""
    text_or_object = in_log if isinstance(in_log, str) else dict(in_log)
    kind: T.DataType = T._parse_datatype_json_value(text_or_object)  # noqa: SLF001  no public name reads a type alone
    return kind


def _check_type(name: str, kind: T.DataType) -> None:
    if not isinstance(kind, _TYPES):
        raise Unsupported(f"column {name} is of the type {kind.simpleString()}, which no table can have")
    match kind:
        case T.ArrayType():
            _check_type(name, kind.elementType)
        case T.MapType():
            _check_type(name, kind.keyType)
            _check_type(name, kind.valueType)
        case T.StructType():
            for field in kind.fields:
                _check_type(f"{name}.{field.name}", field.dataType)
        case _:
            pass


def _nullable(value: Any) -> Any:
    if isinstance(value, list):
        return [_nullable(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: True if key in {"nullable", "containsNull", "valueContainsNull"} else _nullable(each)
        for key, each in value.items()
    }


def rows_of_files(session: SparkSession, state: TableState, entries: Sequence[Action]) -> DataFrame:
    """Return the live rows of some of a version's files, under the table's names; no other file is read."""
    table, physical, gone = Folder.at(state.path), state.physical(), list[pa.Table]()
    for file in map(data_file, entries):
        if file.deleted is not None:
            numbers = deleted_rows(table, file.deleted)
            name = pa.repeat(pa.scalar(file.path.rpartition("/")[2]), len(numbers))
            gone.append(pa.table({_FILE: name, _ROW: pa.array(numbers)}))
    types = T.StructType()
    for field in state.fields:
        types.add(physical[field["name"]], _type(in_files(field["type"])))
    rows = session.read.schema(types).parquet(*(table.url_of(data_file(entry).path) for entry in entries))
    chosen = [col(physical[f["name"]]).cast(_type(f["type"])).alias(f["name"]) for f in state.fields]
    if not gone:
        return rows.select(*chosen)
    if len({data_file(entry).path.rpartition("/")[2] for entry in entries}) < len(entries):
        raise InvariantError(state.path, "two of its files have one name in different folders", "report this")
    metadata = rows.metadataColumn("_metadata")
    places = [metadata.getField("file_name").alias(_FILE), metadata.getField("row_index").alias(_ROW)]
    deleted = relation(session, pa.concat_tables(gone), f"{_FILE} string, {_ROW} bigint")
    return rows.select(*chosen, *places).join(deleted, [_FILE, _ROW], "left_anti").drop(_FILE, _ROW)


def write_by_spark(rows: DataFrame, path: str, number: int, metadata: Action) -> list[AddedFile]:
    """Let Spark write rows into a new folder of the table that has, or is to have, this `metaData`; return the files.

    A column of the table that the rows lack reads as NULL. `number` is that of the cycle, or of the version to come of a
    table that no cycle writes. Evaluates the rows; a folder whose commit is never made is nobody's, as any file that no
    commit names. Raises InvariantError about a column that the table does not have.
    """
    fields = json.loads(metadata["schemaString"])["fields"]
    physical, table = physical_names(fields), Folder.at(path)
    others = [name for name in rows.columns if name not in physical]
    if others:
        raise InvariantError(path, f"rows have the column {others[0]}, and the table has not", "report this")
    types = {field["name"]: _type(in_files(field["type"])) for field in fields}
    given = {field.name: field.dataType for field in rows.schema.fields}
    chosen = [
        (col(name) if given[name].simpleString() == kind.simpleString() else col(name).cast(kind)).alias(physical[name])
        for name, kind in types.items()
        if name in given
    ]
    place = f"cycle-{number:012d}-{uuid.uuid4().hex}"
    rows.select(*chosen).write.options(**_OPTIONS).parquet(table.url_of(place))
    in_rows = [field for field in fields if field["name"] not in metadata["partitionColumns"]]
    columns, files = statistics_columns(in_rows, statistics_of(metadata)), list[AddedFile]()
    for file in sorted(table.files(place), key=lambda each: each.key):
        if not file.key.endswith(".parquet") or file.key.rpartition("/")[2].startswith((".", "_")):
            continue
        with parquet_file(table.store, table.key_of(file.key)) as opened:
            footer = opened.metadata
        if footer.num_rows:
            files.append(AddedFile(entry_of(PlacedFile(file.key, footer, file.bytes, now_ms()), columns)))
    return files
