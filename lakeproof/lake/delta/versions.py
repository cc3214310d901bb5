"""Tables and views as Spark reads them: at the Delta version that a cut names, and what came and went between two versions.

Callers choose the cut (`lakeproof.lake.read`) and interpret the changes (`lakeproof.views.incremental.strategies`).

The rows that came and went are those that `changed_places` finds in the log. Few are read by this process, by their places,
and are a relation that the driver holds. Else Spark reads the files that changed, as plain Parquet, with each row's number
in its file: of a file that came or went the rows that are not deleted, of a file that stays the rows that are named.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeproof.errors import LakeError
from lakeproof.hidden_columns import CAME, HIDDEN_PREFIX, scratch
from lakeproof.lake.delta.log.changed_places import ChangedFile, ChangesUnavailableError, VersionChanges
from lakeproof.lake.delta.log.commits import LogField, check_not_emptied, physical_name
from lakeproof.lake.delta.log.protocol import in_files
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.records.views.cuts import ViewCut, view_path
from lakeproof.lake.rows.change import Numbers
from lakeproof.lake.rows.columns import col, no_rows, pick, relation
from lakeproof.lake.rows.memory import has_ordinary_rows
from lakeproof.names import Layer, TableName
from lakeproof.storage.folder import Folder
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import NotFoundError, Store


def read_layer(
    spark: SparkSession, lake: SourceLake, table: TableName, cut_table: CutTable, layer: Layer = "current"
) -> DataFrame:
    """Return all columns of a table's current or history at the version that a cut names.

    Raises LogGapError if that version's commit was emptied.
    """
    key, version = lake.paths.layer(table, layer), cut_table.version_of(layer)
    check_not_emptied(lake.url(key), version)
    return read_at(spark, lake.url(key), version)


def read_view(spark: SparkSession, store: Store, cut: ViewCut) -> DataFrame:
    """Return a view's rows as its cut has them, without hidden columns."""
    return read_view_at(spark, store, cut.view, cut.delta_version)


def read_view_at(spark: SparkSession, store: Store, view: str, version: int) -> DataFrame:
    """Return a view's rows as a version of its table has them, without hidden columns."""
    rows = read_at(spark, view_path(store, view), version)
    return pick(rows, [column for column in rows.columns if not column.startswith(HIDDEN_PREFIX)])


def read_at(spark: SparkSession, path: str, version: int) -> DataFrame:
    """Return all columns of the Delta table at a path, as one of its versions has them."""
    return spark.read.format("delta").option("versionAsOf", version).load(path)


@dataclass(frozen=True, slots=True)
class TableDetail:
    """A table as Delta describes it: its format, its id, and the place where it is."""

    format: str
    table_id: str
    path: str


def table_detail(spark: SparkSession, name: str) -> TableDetail:
    """Return what Delta says about a table, by its SQL name; raises Spark's error if there is none, or it can't be read."""
    row = spark.sql(f"DESCRIBE DETAIL {name}").select("format", "id", "location").collect()[0]
    return TableDetail(str(row["format"]), str(row["id"]), str(row["location"]))


# The most bytes of rows, as they are in memory, that this process reads and gives to Spark.
COLLECTED_BYTES_MAX = 32 << 20
_COLLECTED_ROWS_MAX = 1_000_000
# The most rows of files that stay, or deleted rows of others, that are named one by one: 17 bytes each.
PLACES_MAX = 4_000_000
_PATH, _FILE, _ROW, _PART = scratch("path"), scratch("file"), scratch("at"), scratch("part")


@dataclass(frozen=True, slots=True)
class RowLimits:
    """The limits of what is read of changes."""

    collected_bytes: int = COLLECTED_BYTES_MAX
    places: int = PLACES_MAX


def row_changes(
    session: SparkSession, path: str, first: int, last: int, columns: Sequence[str], *, limits: RowLimits = RowLimits()
) -> DataFrame:
    """Return the rows of the versions after `first` up to `last`, with `CAME`; a row may come and go within them.

    Raises ChangesUnavailableError if the log does not tell, or if too many rows would have to be named.
    """
    changes = VersionChanges.between(path, first, last, columns)
    fields = {field["name"]: field for field in changes.last.fields}
    chosen = [fields[name] for name in columns]
    schema = _schema({**field, "metadata": {}} for field in chosen).add(CAME, T.BooleanType())
    # Structs and maps come back from Arrow in other types.
    is_plain = not any(inner in json.dumps(field["type"]) for field in chosen for inner in ('"struct"', '"map"'))
    if is_plain and has_ordinary_rows(session):
        rows = changes.collect(columns, _COLLECTED_ROWS_MAX, limits.collected_bytes)
        if rows is not None and rows.num_rows:
            return relation(session, rows, schema)
    try:
        return _Files.of(session, changes, chosen, limits.places).rows(schema)
    except (LakeError, NotFoundError) as error:
        raise ChangesUnavailableError(f"its deletion vectors can't be read ({type(error).__name__})") from error


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of a table that changed, and the columns that are read: fields of the log's schema text.

    `partitions`: the columns that stand in the log alone, with their names there. `places_max`: as in `RowLimits`.
    """

    session: SparkSession
    table: Folder
    files: Sequence[ChangedFile]
    fields: Sequence[LogField]
    partitions: Mapping[str, str]
    places_max: int

    @classmethod
    def of(cls, session: SparkSession, changes: VersionChanges, fields: Sequence[LogField], places_max: int) -> _Files:
        if changes.last.has_property("delta.columnMapping.mode", "id"):
            raise ChangesUnavailableError("its files go by numbers of columns")
        names = changes.last.physical()
        partitions = {name: names[name] for name in changes.last.metadata.get("partitionColumns") or ()}
        return cls(session, Folder.at(changes.last.path), changes.files, fields, partitions, places_max)

    def rows(self, schema: T.StructType) -> DataFrame:
        """Return the rows that came and went."""
        whole = [n for n, file in enumerate(self.files) if file.came is not None]
        stay = [n for n, file in enumerate(self.files) if file.came is None]
        parts = list[DataFrame]()
        names = [_FILE, _ROW]
        if whole:
            rows, deleted = self._scan(whole), self._places(self._deleted(whole))
            parts.append(rows if deleted is None else rows.join(deleted.drop(CAME), names, "left_anti"))
        named = self._places(self._moved(stay))
        if named is not None:
            parts.append(self._scan(stay).drop(CAME).join(named, names))
        if not parts:
            return no_rows(self.session, {field.name: field.dataType for field in schema.fields})
        result = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
        return result.select(*(col(field.name) for field in schema.fields))

    def _scan(self, numbers: Sequence[int]) -> DataFrame:
        """Return the rows of some files, deleted ones too, each with its file's number, its own there, and `CAME`."""
        read_fields = [field for field in self.fields if field["name"] not in self.partitions]
        schema = _schema({**f, "name": physical_name(f), "type": in_files(f["type"])} for f in read_fields)
        # A file that was put together with others, and restored, may have come more than once.
        by_place = defaultdict[str, list[int]](list)
        for number in numbers:
            by_place[_place(self.table.url_of(self.files[number].file.path))].append(number)
        read = self.session.read.schema(schema).parquet(*by_place)
        named = {url: _place(unquote(url)) for url in read.inputFiles()}
        if set(named.values()) != set(by_place):
            raise ChangesUnavailableError("Spark has other names for its files")
        # Hadoop writes a path as `file:/a` or as `file:///a`.
        urls = [
            (spelling, number)
            for url, place in named.items()
            for number in by_place[place]
            for spelling in {url, url.replace("file:///", "file:/", 1)}
        ]
        files = relation(self.session, self._table_of(urls))
        metadata = read.metadataColumn("_metadata")
        rows = read.select(
            "*", metadata.getField("file_path").alias(_PATH), metadata.getField("row_index").alias(_ROW)
        ).join(F.broadcast(files), _PATH)
        types = {field.name: field.dataType for field in _schema(self.fields)}
        values = {name: f"{_PART}{number}" for number, name in enumerate(self.partitions)}
        columns = [
            col(values.get(field["name"], physical_name(field))).cast(types[field["name"]]).alias(field["name"])
            for field in self.fields
        ]
        return rows.select(*columns, _FILE, _ROW, CAME)

    def _table_of(self, urls: Sequence[tuple[str, int]]) -> pa.Table:
        """Return the files as Spark names them, with their numbers and the values that all rows of one have."""
        files = [self.files[number] for _, number in urls]
        columns = {
            _PATH: pa.array([url for url, _ in urls], pa.string()),
            _FILE: pa.array([number for _, number in urls], pa.int32()),
            CAME: pa.array([file.came for file in files], pa.bool_()),
        }
        for number, name in enumerate(self.partitions.values()):
            # An empty text is NULL, too.
            columns[f"{_PART}{number}"] = pa.array([file.partition.get(name) or None for file in files], pa.string())
        return pa.table(columns)

    def _deleted(self, numbers: Iterable[int]) -> Iterator[tuple[int, bool, Numbers]]:
        for number in numbers:
            then, now = self.files[number].deleted(self.table)
            yield number, True, now if self.files[number].came else then

    def _moved(self, numbers: Iterable[int]) -> Iterator[tuple[int, bool, Numbers]]:
        for number in numbers:
            yield from ((number, *each) for each in self.files[number].places(self.table))

    def _places(self, named: Iterable[tuple[int, bool, Numbers]]) -> DataFrame | None:
        """Return places: a file's number, a row's there, and `CAME`; None if there are none."""
        parts, count = list[pa.RecordBatch](), 0
        for number, came, rows in named:
            count += len(rows)
            if count > self.places_max:
                raise ChangesUnavailableError(f"more than {self.places_max:,} rows would be named one by one")
            columns = [np.full(len(rows), number, np.int32), rows, np.full(len(rows), came)]
            parts.append(pa.record_batch(columns, [_FILE, _ROW, CAME]))
        return relation(self.session, pa.Table.from_batches(parts)) if count else None


def _schema(fields: Iterable[LogField]) -> T.StructType:
    return T.StructType.fromJson({"type": "struct", "fields": list(fields)})


def _place(url: str) -> str:
    """Return a place in one spelling."""
    return "/" + url.removeprefix("file:").lstrip("/") if url.startswith(("file:", "/")) else url
