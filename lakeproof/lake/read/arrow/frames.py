"""Reading the lake without Spark: tables and views at a cut, as Arrow batches and pandas frames, and never too many rows.

Choosing the cuts belongs to `open`, reading with Spark to `lakeproof.lake.read.spark`. A service that looks at a table
starts no JVM for it, and `pip install lakeproof` is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeproof.config.location import LakeLocation
from lakeproof.errors import ConfigError, LakeError
from lakeproof.hidden_columns import HIDDEN_PREFIX
from lakeproof.lake.columns import column_names, in_lake
from lakeproof.lake.delta.arrow_rows import DeltaRows
from lakeproof.lake.records.cuts.choice import LakeAtCuts, check_kept, table_name
from lakeproof.lake.records.documents import Cut
from lakeproof.names import TableName
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake

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
        """Return the same rows with these columns alone; files are read for no other. Raises ConfigError for another."""
        return Rows(self.delta, self.chosen(columns))

    def chosen(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        """Return `columns`; raises ConfigError for one that the rows don't have."""
        for name in columns:
            if name not in self.columns:
                raise ConfigError(
                    f"column {name[:80]}", "there is none of that name", f"name some of {[*self.columns]}"
                )
        return columns

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
