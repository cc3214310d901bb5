"""Rows that are few enough for this process: collected, counted by their digests, and found in the view with their places.

Choosing the rows belongs to `strategies` and `added_sums`. A job of Spark's costs some tenths of a second whatever it
does, so a few thousand rows are folded here: one job collects a query's answers with their signs, one looks for the rows
that go, one writes those that come.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeproof.hidden_columns import DUP, KEY, scratch
from lakeproof.lake.columns import quoted
from lakeproof.lake.delta.apply import PATH, ROW, places_of, with_places
from lakeproof.lake.delta.log.state import TableState, read_state
from lakeproof.lake.rows.change import distinct_rows
from lakeproof.lake.rows.columns import col, no_rows, relation
from lakeproof.lake.rows.correction import join_on_key
from lakeproof.lake.rows.memory import ROWS_TOGETHER_MAX, has_ordinary_rows
from lakeproof.lake.spark.jvm import note_scans
from lakeproof.names import CycleNumber
from lakeproof.views.definition import digest_of_stored
from lakeproof.views.incremental.correction import PlacedChange, ViewCorrection

# The most rows of one frame that this process collects: 80 MiB, since 4,096 ordinary rows have 16 MiB.
COLLECTED_ROWS_MAX = 5 * ROWS_TOGETHER_MAX
# Up to here keys are literals of the scan; 1,000 took longer to plan than a join.
LITERAL_KEYS_MAX = 400
# Values that this process can't collect or compute with, and faults of ours: Spark, which computes the whole, has neither.
OWN_FAULTS = (ArithmeticError, LookupError, TypeError, ValueError, pa.ArrowException)
# As in `_lp_ord`: the bits for the rows that one refresh may insert under one digest.
DUP_BITS = 36
_SIGN = scratch("sign")
_NOW = scratch("digest_now")
_SIDE = scratch("collected_")
_PLAIN = (
    T.BooleanType,
    T.IntegralType,
    T.FractionalType,
    T.StringType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)


class NotIncrementalError(Exception):
    """The correction can't be computed from changes; the message says why."""


def collect(rows: DataFrame) -> pa.Table | None:
    """Return the rows; None if they are too many, may be large, or have types that Arrow does not bring back as they are."""
    if not can_collect(rows):
        return None
    limited = rows.limit(COLLECTED_ROWS_MAX + 1)
    table = limited.toArrow()
    note_scans(limited)
    return None if table.num_rows > COLLECTED_ROWS_MAX else table


def can_collect(rows: DataFrame) -> bool:
    """True if rows like these may be collected, as long as they are few."""
    return has_ordinary_rows(rows.sparkSession) and all(_is_plain(field.dataType) for field in rows.schema.fields)


def _is_plain(kind: T.DataType) -> bool:
    return _is_plain(kind.elementType) if isinstance(kind, T.ArrayType) else isinstance(kind, _PLAIN)


def frame_of(session: SparkSession, rows: pa.Table, schema: T.StructType) -> DataFrame:
    """Return collected rows as a relation that the driver has: no job reads it."""
    if not rows.num_rows:
        return no_rows(session, {field.name: field.dataType.simpleString() for field in schema.fields})
    return relation(session, rows, schema)


@dataclass(frozen=True, slots=True)
class Signed:
    """Rows of a query with their digests: `signs` has 1 for a row that comes, -1 for one that goes."""

    rows: pa.Table
    schema: T.StructType
    signs: Sequence[int]

    def of_sign(self, sign: int) -> pa.Table:
        """Return the rows with one of the signs."""
        return self.rows.take(pa.array([i for i, other in enumerate(self.signs) if other == sign], pa.int64()))


def collect_signed(came: Iterable[DataFrame], went: Iterable[DataFrame]) -> Signed | None:
    """Collect the rows of frames with the same columns in one job; None as `collect`, or if no frame is given."""
    signed = [side.withColumn(_SIGN, F.lit(sign)) for sides, sign in ((came, 1), (went, -1)) for side in sides]
    if not signed:
        return None
    table = collect(reduce(DataFrame.unionAll, signed))
    if table is None:
        return None
    schema = T.StructType([field for field in signed[0].schema.fields if field.name != _SIGN])
    return Signed(table.drop_columns([_SIGN]), schema, table.column(_SIGN).to_pylist())


@dataclass(frozen=True)
class StoredView:
    """The view's table at `path` and its `version`; `rows` has them with their hidden columns. `number` is the refresh's."""

    session: SparkSession
    path: str
    version: int
    rows: DataFrame
    number: CycleNumber

    @cached_property
    def state(self) -> TableState:
        """The version that the rows have."""
        return read_state(self.path, self.version)

    def _placed(self, values: Mapping[str, Sequence[Any]]) -> DataFrame:
        """Return the rows with their places; of files that can have none of some columns' `values` not all are read."""
        rows = with_places(self.session, self.state)
        for name, searched in values.items():
            if isinstance(rows.schema[name].dataType, T.IntegralType) and searched and None not in searched:
                rows = rows.where(col(name).between(min(searched), max(searched)))
        return rows

    def images(self, rows: pa.Table, schema: T.StructType) -> DataFrame | None:
        """Return rows with digests as they are stored: with numbers that no row of the same digest has. None for no rows."""
        return images_of(self.session, self.number, rows, schema) if rows.num_rows else None

    def all_digests(self) -> pa.Table | None:
        """Return all stored rows: `KEY`, `DUP` and their places.

        None as `collect`, and if they are damaged: a row is not what its digest says, or two have the same `KEY` and `DUP`.
        """
        table = collect(self._placed({}).select(KEY, DUP, PATH, ROW, digest_of_stored(self.rows).alias(_NOW)))
        if table is None:
            return None
        digests = table.column(KEY).to_pylist()
        names = set(zip(digests, table.column(DUP).to_pylist(), strict=True))
        if table.column(_NOW).to_pylist() != digests or len(names) != len(digests):
            return None
        return table.drop_columns([_NOW])

    def with_digests(self, digests: Sequence[str], like: pa.Table) -> pa.Table | None:
        """Return the stored rows with these digests: `KEY`, `DUP` and their places. None as `collect`.

        Files that can have none of the rows `like`, by their whole numbers, are left out.
        """
        keys = pa.table({KEY: pa.array(digests, pa.string())})
        whole = [name for name in like.column_names if pa.types.is_integer(like.schema.field(name).type)]
        rows = self._placed({name: like.column(name).unique().to_pylist() for name in whole})
        values = Values(keys, T.StructType([T.StructField(KEY, T.StringType())]))
        return collect(values.of(rows.select(KEY, DUP, PATH, ROW), [KEY]))

    def with_values(self, columns: Sequence[str], values: Values) -> pa.Table | None:
        """Return the stored rows with these values in `columns`, whole and with their places.

        None as `collect`. Raises NotIncrementalError if one of them is not what its digest says.
        """
        keys = values.rows
        whole = [(i, name) for i, name in enumerate(columns) if pa.types.is_integer(keys.schema.field(i).type)]
        rows = self._placed({name: keys.column(i).to_pylist() for i, name in whole})
        table = collect(values.of(rows, columns).withColumn(_NOW, digest_of_stored(self.rows)))
        if table is None:
            return None
        if table.column(_NOW).to_pylist() != table.column(KEY).to_pylist():
            raise NotIncrementalError("rows of its table are not what their digests say")
        return table.drop_columns([_NOW])


def images_of(session: SparkSession, number: CycleNumber, rows: pa.Table, schema: T.StructType) -> DataFrame:
    """Return rows with digests as the refresh `number` stores them: each with a number that no row of its digest has."""
    seen: Counter[str] = Counter()
    numbers = []
    for digest in rows.column(KEY).to_pylist():
        seen[digest] += 1
        numbers.append((int(number) << DUP_BITS) + seen[digest])
    numbered = rows.append_column(DUP, pa.array(numbers, pa.int64()))
    return frame_of(session, numbered, T.StructType([*schema.fields, T.StructField(DUP, T.LongType())]))


@dataclass(frozen=True, slots=True)
class Values:
    """Values of some columns that this process holds, each once."""

    rows: pa.Table
    schema: T.StructType

    def of(self, rows: DataFrame, columns: Sequence[str]) -> DataFrame:
        """Return the rows that have one of them in `columns`, which are as many and of the same types; NULL equals NULL.

        Few whole numbers or texts are literals of the scan. Every row has the value of no columns.
        """
        if not columns:
            return rows
        kind, is_few = self.schema.fields[0].dataType, self.rows.num_rows <= LITERAL_KEYS_MAX
        if len(columns) == 1 and is_few and (isinstance(kind, T.IntegralType) or is_text(kind)):
            return rows.where(_is_one_of(columns[0], self.rows.column(0).to_pylist()))
        return with_one_of(rows, columns, frame_of(rows.sparkSession, self.rows, self.schema))

    def columns(self, positions: Sequence[int]) -> Values:
        """Return the values of some of the columns."""
        schema = T.StructType([self.schema.fields[position] for position in positions])
        return Values(distinct_rows(self.rows.select(list(positions))), schema)


def with_one_of(rows: DataFrame, columns: Sequence[str], keys: DataFrame) -> DataFrame:
    """Return the rows with one of the `keys`, which are sent to every task, in `columns`; NULL equals NULL."""
    inside = [f"{_SIDE}{i}" for i in range(len(columns))]
    marked = rows.select("*", *(col(name).alias(i) for name, i in zip(columns, inside, strict=True)))
    return join_on_key(marked, F.broadcast(keys.toDF(*inside)), inside, "left_semi", null_safe=True).drop(*inside)


def _is_one_of(key: str, keys: Sequence[Any]) -> Column:
    """Return the condition as SQL text: one call into the JVM, whatever the number of keys."""
    name = quoted(key)
    texts = ", ".join(_sql(k) for k in keys if k is not None)
    one_of = f"{name} IN ({texts})" if texts else "false"
    return F.expr(f"{one_of} OR {name} IS NULL" if None in keys else one_of)


def _sql(value: Any) -> str:
    """Return a literal that means the same under all settings of a session: texts are given by their bytes."""
    if isinstance(value, str):
        return f"cast(X'{value.encode().hex()}' AS STRING)"
    return f"{value}L" if value >= 0 else f"(-{-value}L)" if value > -(1 << 63) else "(-9223372036854775807L - 1L)"


def is_text(kind: T.DataType) -> bool:
    """True for texts that are compared by their bytes."""
    return isinstance(kind, T.StringType) and kind.simpleString() == "string"


def net_of(digests: Iterable[str], signs: Iterable[int]) -> tuple[dict[str, int], dict[str, int]]:
    """Add up each digest's signs: return how many rows of which digests are too many, and how many are missing."""
    totals: defaultdict[str, int] = defaultdict(int)
    for digest, sign in zip(digests, signs, strict=True):
        totals[digest] += sign
    surplus = {digest: -total for digest, total in totals.items() if total < 0}
    return surplus, {digest: total for digest, total in totals.items() if total > 0}


def first_of_each(rows: pa.Table, counts: Mapping[str, int], order: str | None = None) -> pa.Table:
    """Return as many rows of each digest as `counts` says, the first ones by the column `order`."""
    left, chosen = dict(counts), []
    digests = rows.column(KEY).to_pylist()
    places: Iterable[int] = range(len(digests))
    if order is not None:
        values: list[Any] = rows.column(order).to_pylist()
        places = sorted(places, key=values.__getitem__)
    for place in places:
        if left.get(digests[place], 0) > 0:
            left[digests[place]] -= 1
            chosen.append(place)
    return rows.take(pa.array(chosen, pa.int64()))


def correction_of(stored: StoredView, retracted: pa.Table, images: DataFrame | None, inserted: int) -> ViewCorrection:
    """Return the correction by so many `images` in place of stored rows; nothing is placed if there are none of either."""
    placed = None
    if retracted.num_rows or images is not None:
        placed = PlacedChange(stored.state, images, places_of(stored.state, retracted) if retracted.num_rows else {})
    return ViewCorrection(None, None, retracted.num_rows, inserted, placed=placed)


def correction_to(desired: pa.Table, persisted: pa.Table, stored: StoredView, schema: T.StructType) -> ViewCorrection:
    """Return what makes the `persisted` rows of the view's table, which have places, the `desired` ones."""
    digests = [*desired.column(KEY).to_pylist(), *persisted.column(KEY).to_pylist()]
    surplus, missing = net_of(digests, [1] * desired.num_rows + [-1] * persisted.num_rows)
    inserted = first_of_each(desired, missing)
    retracted = first_of_each(persisted, surplus, DUP)
    return correction_of(stored, retracted, stored.images(inserted, schema), inserted.num_rows)


def whole_correction(desired: DataFrame, stored: StoredView) -> ViewCorrection | None:
    """Return what makes the view's table the `desired` rows, which have digests.

    None as `collect`, for either side, and if the table is damaged.
    """
    answers = collect(desired)
    there = None if answers is None else stored.all_digests()
    if answers is None or there is None:
        return None
    return correction_to(answers, there, stored, desired.schema)
