"""The changes of a view's tables since its cut, read once: by this process if they are few, else kept by Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeproof.hidden_columns import CAME
from lakeproof.lake.rows.columns import col, pick
from lakeproof.lake.rows.memory import persist
from lakeproof.lake.spark.jvm import note_scans
from lakeproof.views.incremental.collected import COLLECTED_ROWS_MAX, NotIncrementalError, can_collect, frame_of

# The most rows that changed which are sent to every task; more are computed as a whole.
CHANGED_ROWS_MAX = 1_000_000

# Binds the query's names to frames, and returns its rows with their digests.
Query = Callable[[Mapping[str, DataFrame]], DataFrame]


@dataclass(frozen=True, slots=True)
class ChangeSource:
    """The origin of a table's changes: the table `now` and as it was (`before`), and the rows that came and went.

    `rows` has them for Spark, with `CAME`; it raises NotIncrementalError if they can't be had. `places` has those of some
    columns for this process, at most so many; None if they are more, or not to be had so. `added` are the columns of
    `now` that were not there before.
    """

    now: DataFrame
    before: Callable[[], DataFrame]
    rows: Callable[[], DataFrame]
    places: Callable[[Sequence[str], int], pa.Table | None]
    added: frozenset[str] = frozenset()

    def check_added(self, used: frozenset[int]) -> None:
        """Raise NotIncrementalError if a column at one of these positions was added: a name may mean another one now.

        So it is with NATURAL JOIN, and with a subquery's name that meant a column of the query around it.
        """
        columns = [name for position, name in enumerate(self.now.columns) if position in used]
        others = sorted(self.added.intersection(columns))
        if others:
            raise NotIncrementalError(f"it reads {', '.join(others)}, which was added")


@dataclass(frozen=True, slots=True)
class ChangedTable:
    """A table of the query at the view's cut and now, and the rows that came and went (`CAME`) in between.

    `came` and `went`: how many, if this process holds them.
    """

    before: Callable[[], DataFrame]
    now: DataFrame
    rows: DataFrame
    came: int | None = None
    went: int | None = None

    def side(self, *, came: bool) -> DataFrame:
        """Return the rows that came, or those that went, with the table's columns."""
        return pick(self.rows.where(F.col(CAME) if came else ~F.col(CAME)), self.now.columns)

    def has(self, *, came: bool) -> bool:
        """False if no row is known to have come, or to have gone."""
        return (self.came if came else self.went) != 0


@dataclass(frozen=True, slots=True)
class Changed:
    """The query's tables: all of them `now`, and those that changed by their names in lower case.

    `rows` returns how many rows each has, by the same names; None for those that nobody counted.
    """

    now: Mapping[str, DataFrame]
    changes: Mapping[str, ChangedTable]
    rows: Callable[[], Mapping[str, int | None]] = dict

    def rows_of(self, names: Iterable[str]) -> int | None:
        """Return how many rows some tables have together; None if nobody counted those of one."""
        counts = self.rows()
        numbers = [counts.get(name) for name in names]
        return None if None in numbers else sum(number for number in numbers if number is not None)

    @property
    def collected(self) -> bool:
        """True if this process holds all changed rows."""
        return all(change.came is not None for change in self.changes.values())


def read_changed_tables(
    changes: Mapping[str, ChangeSource], used: Mapping[str, frozenset[int]], kept: ExitStack
) -> tuple[dict[str, ChangedTable], int]:
    """Return the changes of the tables that have some, each read once, and the number of rows.

    `used`: the positions of each table's columns that matter; all other columns are NULL.
    """
    result, total = {}, 0
    for name, source in changes.items():
        try:
            count, change = _read(source, used[name], kept)
        except NotIncrementalError:
            raise
        except Exception as error:
            raise NotIncrementalError(f"the changes of {name} can't be read ({type(error).__name__})") from error
        total += count
        if total > CHANGED_ROWS_MAX:
            raise NotIncrementalError(f"{total:,} rows have changed, more than {CHANGED_ROWS_MAX:,}")
        if count:
            result[name] = change
    return result, total


def _read(source: ChangeSource, used: frozenset[int], kept: ExitStack) -> tuple[int, ChangedTable]:
    fields = source.now.schema.fields
    chosen = [field.name for position, field in enumerate(fields) if position in used]
    columns = [col(f.name) if f.name in chosen else F.lit(None).cast(f.dataType).alias(f.name) for f in fields]
    collected = source.places(chosen, COLLECTED_ROWS_MAX) if can_collect(source.now) else None
    if collected is None:
        rows = kept_in(source.rows().select(*columns, CAME), kept)
        return rows.count(), ChangedTable(source.before, source.now, rows)
    flag = T.StructField(CAME, T.BooleanType())
    schema = T.StructType([f for f in fields if f.name in chosen] + [flag])
    narrow = frame_of(source.now.sparkSession, collected, schema)
    came = sum(collected.column(CAME).to_pylist())
    rows = narrow.select(*columns, CAME)
    return collected.num_rows, ChangedTable(source.before, source.now, rows, came, collected.num_rows - came)


def kept_in(rows: DataFrame, kept: ExitStack) -> DataFrame:
    """Persist rows until the stack is closed."""
    rows = persist(rows)

    def release() -> None:
        note_scans(rows)
        rows.unpersist()

    kept.callback(release)
    return rows
