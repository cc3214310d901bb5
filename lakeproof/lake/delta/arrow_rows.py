"""The rows of a version of a Delta table as Arrow batches, read from its log and files without Spark.

Choosing the version belongs to `lakeproof.lake.read.arrow.open`. What our tables use is known here: deletion vectors,
column mapping by name, columns that were widened or added later. Anything else that a reader has to know is refused.

Memory: one batch of rows, and the numbers of one file's deleted rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeproof.errors import LakeError, UnreadableRowsError
from lakeproof.lake.delta.files.data_files import DeltaFile, data_file, deleted_rows, live_rows, opened_data_file
from lakeproof.lake.delta.files.statistics import Bounds, group_bounds
from lakeproof.lake.delta.log.commits import Action, LogField, LogType, check_not_emptied, physical_name
from lakeproof.lake.delta.log.protocol import LISTS_FEATURES_READER, READER_FEATURES, in_files
from lakeproof.lake.delta.log.state import TableShape, TableState, read_state, table_shape
from lakeproof.lake.rows.change import Numbers
from lakeproof.lake.rows.hashed import BATCH_ROWS
from lakeproof.storage.folder import Folder
from lakeproof.values.types import LAKE_TYPES

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_TYPES: Mapping[str, pa.DataType] = {each.in_log: each.arrow() for each in LAKE_TYPES.values()}


class NotInArrowError(LakeError):
    """A table that has what is not known here, and that Spark may read."""


@dataclass(frozen=True, slots=True)
class _Field:
    """A column: its name, its name in files, and its type now."""

    name: str
    physical: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class DeltaRows:
    """One version of a Delta table. `open` reads its log; nothing of its rows is read before `batches`."""

    table: Folder
    fields: tuple[_Field, ...]
    files: tuple[DeltaFile, ...]

    @classmethod
    def open(cls, path: str, version: int, files: Sequence[DeltaFile] | None = None) -> DeltaRows:
        """Read the log; raises LakeError if the version is not whole, or has features that are not known here.

        With `files` these are the version's: nothing but its columns is read.
        """
        check_not_emptied(path, version)
        if files is None:
            state = read_state(path, version)
            shape: TableShape = state
            files = list(map(data_file, state.files.values()))
        else:
            shape = table_shape(path, version)
        _check_features(path, shape.protocol)
        if shape.is_partitioned:
            raise NotInArrowError(path, "it is partitioned, as only tables of days are", "read it with Spark")
        return cls(Folder.at(path), tuple(map(_field, shape.fields)), tuple(files))

    @classmethod
    def of_state(cls, state: TableState) -> DeltaRows:
        """Return the version of a state that was read."""
        return cls(Folder.at(state.path), tuple(map(_field, state.fields)), tuple(map(data_file, state.files.values())))

    @property
    def schema(self) -> pa.Schema:
        """The columns with their Arrow types, in the table's order."""
        return pa.schema([(field.name, field.type) for field in self.fields])

    def schema_of(self, columns: Iterable[str]) -> pa.Schema:
        """Return some of them, in this order."""
        return pa.schema([self.schema.field(name) for name in columns])

    @property
    def rows(self) -> int | None:
        """The number of the rows, by the log alone; None if it does not say."""
        return live_rows(self.files)

    def batches(self, columns: Sequence[str] | None = None, rows_max: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows, at most `rows_max` at a time; raises UnreadableRowsError."""
        fields = self._fields(columns)
        for file in self.files:
            yield from (rows for rows, _ in self._of_file(file, fields, rows_max))

    def of_file(self, file: DeltaFile, columns: Sequence[str], rows_max: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one of the files, as `batches` does."""
        yield from (rows for rows, _ in self._of_file(file, self._fields(columns), rows_max))

    def numbered(
        self, file: DeltaFile, columns: Sequence[str], rows_max: int = BATCH_ROWS, gone: Numbers | None = None
    ) -> Iterator[tuple[pa.RecordBatch, Numbers]]:
        """Yield the live rows of one of the files, but for those with the numbers `gone`, with their numbers in the file."""
        yield from self._of_file(file, self._fields(columns), rows_max, gone)

    def bounds(self, file: DeltaFile, column: str) -> Bounds | None:
        """Return the least and greatest value of a column in a file, deleted rows included, by the file's own statistics.

        None if it has none, or no row. Raises as `batches`.
        """
        (field,) = self._fields([column])
        with opened_data_file(self.table, file.path) as parquet:
            groups = [group_bounds(parquet.metadata, n, field.physical) for n in range(parquet.num_row_groups)]
            pairs = [bounds for bounds in groups if bounds is not None]
            if not pairs or len(pairs) < len(groups):
                return None
            return min(low for low, _ in pairs), max(high for _, high in pairs)

    def at_places(
        self, file: str, numbers: Numbers, columns: Sequence[str], counted: int | None = None
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the rows of a file with these numbers, in order, each batch with the number of rows that it was taken from.

        Row groups without any of the rows are not read. Raises as `batches`, and if the file has another number of rows than
        `counted`: whoever has the numbers from that would miss some.
        """
        fields = self._fields(columns)
        with opened_data_file(self.table, file) as parquet:
            rows = parquet.metadata.num_rows
            if counted is not None and rows != counted:
                reason = f"it has {rows:,} rows, and the log says {counted:,}"
                raise UnreadableRowsError(self.table.url_of(file), reason, "restore it from a backup")
            stored = _stored(parquet, fields)
            first = 0
            for group in range(parquet.num_row_groups):
                end = first + parquet.metadata.row_group(group).num_rows
                if np.searchsorted(numbers, first) < np.searchsorted(numbers, end):
                    for batch in parquet.iter_batches(BATCH_ROWS, row_groups=[group], columns=stored):
                        low, high = np.searchsorted(numbers, [first, first + batch.num_rows])
                        yield _shaped(batch.take(pa.array(numbers[low:high] - first)), fields), batch.num_rows
                        first += batch.num_rows
                first = end

    def _fields(self, columns: Sequence[str] | None) -> list[_Field]:
        by_name = {field.name: field for field in self.fields}
        missing = [name for name in columns or () if name not in by_name]
        if missing:
            raise UnreadableRowsError(
                self.table.url, f"it has no column {missing[0][:80]}", f"name some of {sorted(by_name)}"
            )
        return [by_name[name] for name in (by_name if columns is None else columns)]

    def _of_file(
        self, file: DeltaFile, fields: Sequence[_Field], rows_max: int, gone: Numbers | None = None
    ) -> Iterator[tuple[pa.RecordBatch, Numbers]]:
        deleted, first = gone, 0
        if file.deleted is not None:
            marked = deleted_rows(self.table, file.deleted)
            deleted = marked if gone is None else np.union1d(gone, marked)
        with opened_data_file(self.table, file.path) as parquet:
            for batch in parquet.iter_batches(rows_max, columns=_stored(parquet, fields)):
                rows, numbers = _without(batch, deleted, first)
                yield _shaped(rows, fields), numbers
                first += batch.num_rows


def _stored(parquet: pq.ParquetFile, fields: Sequence[_Field]) -> list[str]:
    names = parquet.schema_arrow.names
    return [field.physical for field in fields if field.physical in names]


def _without(batch: pa.RecordBatch, deleted: Numbers | None, first: int) -> tuple[pa.RecordBatch, Numbers]:
    """Return a batch, whose first row has this number in its file, without the deleted rows, and the other rows' numbers."""
    numbers = np.arange(first, first + batch.num_rows)
    if deleted is None:
        return batch, numbers
    low, high = np.searchsorted(deleted, [first, first + batch.num_rows])
    if low == high:
        return batch, numbers
    kept = np.ones(batch.num_rows, dtype=bool)
    kept[deleted[low:high] - first] = False
    return batch.filter(pa.array(kept)), numbers[kept]


def _shaped(batch: pa.RecordBatch, fields: Sequence[_Field]) -> pa.RecordBatch:
    """Return a file's rows under the names and types that the table has now."""
    arrays = []
    for field in fields:
        index = batch.schema.get_field_index(field.physical)
        if index < 0:
            arrays.append(pa.nulls(batch.num_rows, field.type))
        else:
            arrays.append(widened(batch.column(index), field.type))
    return pa.record_batch(arrays, schema=pa.schema([(field.name, field.type) for field in fields]))


def widened(array: pa.Array, wide: pa.DataType) -> pa.Array:
    """Return values of a file under the type that the table's column has now."""
    if array.type.equals(wide):
        return array
    if pa.types.is_integer(array.type) and pa.types.is_decimal(wide):
        # Arrow asks for room for every integer of the type, as if there were larger ones than the column had.
        return pc.cast(pc.cast(array, pa.decimal128(38, 0)), wide)
    return pc.cast(array, wide)


def in_schema(part: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns of the schema: those that they lack are null."""
    named = set(part.column_names)
    columns = [part[f.name] if f.name in named else pa.nulls(part.num_rows, f.type) for f in schema]
    return pa.Table.from_arrays(columns, names=schema.names).cast(schema)


def _check_features(path: str, protocol: Action) -> None:
    version, names = int(protocol["minReaderVersion"]), set(protocol.get("readerFeatures") or ())
    unknown = sorted(names - READER_FEATURES)
    if version > LISTS_FEATURES_READER or unknown:
        reason = f"its readers must know {', '.join(unknown) or f'version {version} of the protocol'}"
        raise NotInArrowError(path, reason, "read it with Spark: `lakeproof.open`")


def arrow_schema(fields: Sequence[LogField]) -> pa.Schema:
    """Return a table's columns, as its schema text has them, with their Arrow types."""
    return pa.schema([(field.name, field.type) for field in map(_field, fields)])


def _field(field: LogField) -> _Field:
    if in_files(field["type"]) != field["type"]:
        reason = f"fields inside its column {field['name'][:80]} have other names in files"
        raise LakeError("a Delta table", reason, "read it with Spark: `lakeproof.open`")
    return _Field(field["name"], physical_name(field), _arrow_type(field["type"]))


def _arrow_type(json_type: LogType) -> pa.DataType:
    if isinstance(json_type, str):
        decimal = _DECIMAL.fullmatch(json_type)
        if decimal is not None:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        # A string with a collation is a string.
        return _TYPES[json_type.partition(" ")[0]]
    if json_type["type"] == "array":
        return pa.list_(pa.field("element", _arrow_type(json_type["elementType"])))
    if json_type["type"] == "map":
        return pa.map_(_arrow_type(json_type["keyType"]), _arrow_type(json_type["valueType"]))
    return pa.struct([(field["name"], _arrow_type(field["type"])) for field in json_type["fields"]])
