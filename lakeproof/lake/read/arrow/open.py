"""Opening the lake without Spark: tables and views as Arrow batches and pandas frames, at cuts or as fresh as the landing.

The same with Spark, for every kind of table and any number of changes, belongs to `read.spark.open`. A service that looks at
a table starts no JVM for it, and `pip install lakeproof` is enough.

At the landing's end it is the newest cut, and what has landed since:

    the cut's batches, without the rows whose key was touched ─► then the newest row of each key that is there

The fold is the cycle's, with its bounds; more rows than `CHANGES_BYTES_MAX` are left to Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

import numpy as np
import pyarrow as pa

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config, location_of
from lakeproof.errors import ConfigError, LakeError
from lakeproof.hidden_columns import DUP, HIDDEN_PREFIX, ORD
from lakeproof.lake.columns import column_names, current_columns, in_lake
from lakeproof.lake.delta.arrow_rows import DeltaRows, in_schema
from lakeproof.lake.delta.search import KeyLookup, LakeBase
from lakeproof.lake.fold.key_fold import fold_keys
from lakeproof.lake.planning.landing.end import LANDING, LakeAtLanding, LandingEnd, cuts_and_ends
from lakeproof.lake.records.cuts.choice import NEWEST, At, LakeAtCuts, check_kept, cuts_at, table_name
from lakeproof.lake.records.documents import Cut, CutTable
from lakeproof.lake.rows.change import NetChange, Removed, Unsupported, in_memory
from lakeproof.lake.rows.file_rows import LandedRange, TableRange
from lakeproof.lake.rows.hashed import BATCH_ROWS
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake
from lakeproof.values.types import arrow_type

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # it ships no types


# A caller who says nothing gets at most so many rows into the memory of a notebook or a service.
ROWS_MAX = 10_000_000


def to_arrow(schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows_max: int | None) -> pa.Table:
    """Return the batches as one table; raises LakeError for more than `rows_max` rows (None: any number)."""
    kept: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        if rows_max is not None and rows > rows_max:
            raise too_many(rows_max)
        kept.append(batch)
    return pa.Table.from_batches(kept, schema)


def too_many(rows_max: int) -> LakeError:
    """Return the error about rows that are not read into memory."""
    remedy = (
        "select columns and rows, read `lakeproof.read(…).batches()`, or allow more with rows_max (None: any number)"
    )
    return LakeError("rows in memory", f"there are more than {rows_max:,}", remedy)


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Return the table as a frame whose columns have Arrow's types: no value is changed by pandas' own.

    Raises ConfigError if pandas is not installed.
    """
    try:
        import pandas as pd
    except ModuleNotFoundError:
        raise ConfigError("pandas", "it is not installed", "install lakeproof[pandas], or use `arrow()`") from None
    return table.to_pandas(types_mapper=pd.ArrowDtype)


@dataclass(frozen=True, slots=True)
class Rows:
    """A table or view at a cut. `columns` are those that are given, hidden ones only if they were asked for."""

    delta: DeltaRows
    columns: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns with their Arrow types: times are microseconds, decimals have their precision and scale."""
        return self.delta.schema_of(self.columns)

    def select(self, *columns: str) -> Rows:
        """Return the same rows with these columns alone; raises ConfigError for another.

        Files are read for no other; at the landing's end, for the key, too.
        """
        for name in columns:
            if name not in self.columns:
                raise ConfigError(
                    f"column {name[:80]}", "there is none of that name", f"name some of {[*self.columns]}"
                )
        return replace(self, columns=columns)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, 65,536 at a time at most, in no order; raises LakeError if a file is missing or damaged."""
        return self.delta.batches(self.columns)

    def reader(self) -> pa.RecordBatchReader:
        """Return the batches as a stream that DuckDB, Polars and Arrow take."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def arrow(self, rows_max: int | None = ROWS_MAX) -> pa.Table:
        """Return all rows in memory; raises LakeError for more than `rows_max` (None: any number)."""
        return to_arrow(self.schema, self.batches(), rows_max)

    def pandas(self, rows_max: int | None = ROWS_MAX) -> pd.DataFrame:
        """Return all rows in memory as a frame whose columns have Arrow's types; raises as `arrow`, and without pandas."""
        return to_pandas(self.arrow(rows_max))


@dataclass(frozen=True, slots=True, repr=False)
class ReadLake(LakeAtCuts):
    """A lake pinned at `cuts`, one per source that has any, to be read without Spark."""

    lake: LakeLocation
    cuts: Mapping[str, Cut]

    def table(self, source: str, table: TableName | str, *, hidden: bool = False) -> Rows:
        """Return a table's current rows at the cut, without the hidden `_lp_…` columns unless asked for.

        `table` may be written `schema.table`. Raises LakeError if the cut does not have the table.
        """
        name = table_name(table)
        cut_table = self.cut(source).table(name, source)
        rows = self._rows(source, LakePaths(source).current(name), cut_table.current_version)
        return rows if hidden else Rows(rows.delta, tuple(column_names(in_lake(cut_table.version))))

    def history(self, source: str, table: TableName | str) -> Rows:
        """Return a table's history up to the cut, with the hidden columns, as it is stored.

        A large value that an update left alone is NULL, and `_lp_from` names the row that has it; `lakeproof.open` fills it
        in. Raises LakeError if the cut does not have the table.
        """
        name = table_name(table)
        cut_table = self.cut(source).table(name, source)
        return self._rows(source, LakePaths(source).history(name), cut_table.history_version)

    def view(self, name: str) -> Rows:
        """Return a view's rows as they are at the opened cuts, without hidden columns; raises as `view_cut`."""
        cut = self.view_cut(name)
        delta = DeltaRows.open(open_store(self.lake).url(LakePaths.view(name)), cut.delta_version)
        return Rows(delta, tuple(n for n in delta.schema.names if not n.startswith(HIDDEN_PREFIX)))

    def _rows(self, source: str, key: str, version: int) -> Rows:
        lake = SourceLake.open(self.lake, source)
        check_kept(lake, self.cut(source))
        delta = DeltaRows.open(lake.url(key), version)
        return Rows(delta, tuple(delta.schema.names))


# The rows of a table that have landed since the cut, decoded.
CHANGES_BYTES_MAX = 128 << 20


@dataclass(frozen=True, slots=True)
class LandedRows(Rows):
    """A table at the landing's end. What has landed is held in memory; the cut's rows come in batches."""

    net: NetChange[pa.Table]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, 65,536 at a time at most, in no order; raises LakeError if a file is missing or damaged."""
        match self.net.removed:
            case Removed(key, keys) if keys.num_rows:
                lookup, others = KeyLookup.of(key, keys), [name for name in key if name not in self.columns]
                for batch in self.delta.batches([*self.columns, *others]):
                    yield _without(batch, key, lookup).select(list(self.columns))
            case Removed() | None:
                yield from self.delta.batches(self.columns)
        if self.net.images is not None:
            images = self.net.images.select(list(self.columns)).cast(self.schema)
            yield from images.to_batches(max_chunksize=BATCH_ROWS)


def _without(batch: pa.RecordBatch, key: Sequence[str], lookup: KeyLookup) -> pa.RecordBatch:
    """Return a batch without the rows that have one of the keys."""
    touched, _ = lookup.match(pa.chunked_array([batch.column(name)]) for name in key)
    if not len(touched):
        return batch
    kept = np.ones(batch.num_rows, np.bool_)
    kept[touched] = False
    return batch.filter(pa.array(kept))


@dataclass(frozen=True, slots=True, repr=False)
class LandedReadLake(LakeAtLanding, ReadLake):
    """A lake pinned at the end of each source's landing, on top of `cuts`, to be read without Spark."""

    ends: Mapping[str, LandingEnd]

    def table(self, source: str, table: TableName | str, *, hidden: bool = False) -> Rows:
        """Return a table's rows at the position, without the hidden `_lp_…` columns unless asked for.

        What has landed is read now. Raises LakeError if there is no such table, if what it needs is not kept any more, or if
        it has to be read with Spark.
        """
        name, end = table_name(table), self.end(source)
        version, before = end.version(name), end.before(name)
        if before is None:
            raise _with_spark(end, name, "it was created since the newest cut")
        delta = DeltaRows.open(end.lake.url(LakePaths(source).current(name)), before.current_version)
        columns = tuple(current_columns(in_lake(version)) if hidden else column_names(in_lake(version)))
        try:
            with end.reading(name):
                net = landed_net(end, version, before) if name in end.tables else None
        except Unsupported as error:
            raise _with_spark(end, name, str(error)) from None
        return Rows(delta, columns) if net is None else LandedRows(delta, columns, net)

    def history(self, source: str, table: TableName | str) -> Rows:
        """Raise LakeError: history is made by cycles."""
        raise LakeError(f"{source}: {table}", "history is made by cycles, and ends at a cut", "open the lake at a cut")


@overload
def read_lake(
    lake: Config | LakeLocation | str | Path, at: Literal["landing"], *, group: str | None = None
) -> LandedReadLake: ...
@overload
def read_lake(
    lake: Config | LakeLocation | str | Path, at: At | Mapping[str, At] = NEWEST, *, group: str | None = None
) -> ReadLake: ...
def read_lake(
    lake: Config | LakeLocation | str | Path, at: At | Mapping[str, At] = NEWEST, *, group: str | None = None
) -> ReadLake:
    """Open a lake to be read without Spark; the arguments and errors are those of `lakeproof.open`.

    At the `landing`, a table that was created since the newest cut, or whose changes Spark has to add up, raises LakeError
    when it is asked for.
    """
    place = location_of(lake)
    if at == LANDING:
        return LandedReadLake(place, *cuts_and_ends(lake, group))
    return ReadLake(place, cuts_at(lake, at, group))


def landed_changes(end: LandingEnd, version: SchemaVersion, before: CutTable | None) -> TableRange:
    """Return what has landed of a table since the cut that has it as `before`."""
    files, start = end.verified(version.table), end.tables[version.table].from_lsn
    landed = LandedRange(in_lake(version), files, end.first_ordinals, start, end.position)
    return TableRange(end.chain, version, before, landed)


def landed_net(end: LandingEnd, version: SchemaVersion, before: CutTable | None) -> NetChange[pa.Table] | None:
    """Return what has landed of a table since the cut that has it as `before`, added up; None if nothing has.

    Raises `Unsupported` if Spark has to add it up, TableHeldError if it does not fit the table.
    """
    changes = landed_changes(end, version, before)
    if changes.counts.rows == 0:
        return None
    if changes.older:
        raise Unsupported("what has landed has rows of several schemas")
    path = end.lake.url(end.lake.paths.current(version.table))
    base = None if before is None else LakeBase(path, before.current_version)
    fold = fold_keys(changes.landed, changes.counts, base)
    rows = fold.current([(file, file.alive) for file in fold.files if file.alive.any()])
    too_large = f"more than {CHANGES_BYTES_MAX >> 20} MiB of its changes have landed"
    parts = in_memory(rows, CHANGES_BYTES_MAX, too_large)
    return NetChange(fold.removed, _images(changes.schema, parts))


def _images(schema: SchemaVersion, parts: Sequence[pa.Table]) -> pa.Table:
    """Return the rows with current's columns."""
    types = {c.name: arrow_type(c) for c in schema.columns} | {ORD: pa.int64(), DUP: pa.int64()}
    fields = [(name, types.get(name, pa.string())) for name in current_columns(schema)]
    return in_schema(pa.concat_tables(parts) if parts else pa.table({}), pa.schema(fields))


def _with_spark(end: LandingEnd, table: TableName, reason: str) -> LakeError:
    remedy = "read it with Spark (`lakeproof.open`), or at the newest cut"
    return LakeError(
        f"{end.lake.source}: {table}", f"without Spark it can't be read at the landing's end: {reason}", remedy
    )
