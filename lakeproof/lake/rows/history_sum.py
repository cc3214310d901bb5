"""The checksum of a table's history: the number of its rows, and the sum of their hashes, which a cut carries.

Making history's rows belongs to `lakeproof.lake.fold.history`, comparing sums with files to `lakeproof.proof.lake.history`.

Sums can be added: a cycle computes the sum of the rows that it appends while it writes them, and adds it to the sum in the
cut before. So the sum in a cut was never read from history's files, and it shows any row there that was altered, doubled or
lost.

A row's hash stays the same when the table's schema changes: a value is tagged with its column's attribute number
(`lakeproof.landing.segments.row_tags.tagged`, which has hidden columns' tags, too), in that order, NULL is left out, and a
number counts at the widest type of its kind. So columns that are added, renamed, put away, widened or moved change no hash.
If a column's number itself changes (a table created anew), the cut's sum is converted to the new numbers by the difference
that this makes to the sum of the files: damage stays visible.

Known weakness: 60 bits of xxHash64 protect against accidents, not against somebody who wants two rows to have one hash.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
)

from lakeproof.lake.records.documents import _BITS, HistorySum
from lakeproof.lake.rows.columns import col
from lakeproof.landing.segments.row_tags import Tag, attribute_number, tagged
from lakeproof.schema import SchemaVersion

_HALF = 30  # bits of a hash in each of its two sums: 2**33 rows fit into a long
_WAIT_S = 10.0
_POLL_S = 0.002
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_DECIMAL_DIGITS = 38


class Summing:
    """The sum of rows while they are written; `sum` is called after the commit."""

    def __init__(self, schema: SchemaVersion, rows: DataFrame) -> None:
        self._observation = Observation()
        self.rows = rows.observe(self._observation, *_sums(schema, rows))

    def sum(self) -> HistorySum | None:
        """Return the sum of the rows that were written, to be called afterwards; None if Spark does not report it."""
        report = self._observation._jo.future()  # type: ignore[union-attr]  # noqa: SLF001  `get` waits without an end
        deadline = time.monotonic() + _WAIT_S
        # Spark reports it right after the write, from another thread.
        while not report.isCompleted():
            if time.monotonic() > deadline:
                return None
            time.sleep(_POLL_S)
        return _read(self._observation.get)


def sum_of(schema: SchemaVersion, rows: DataFrame) -> HistorySum:
    """Return the sum of rows of history under `schema` (the lake's names); one pass over them."""
    return _read(rows.agg(*_sums(schema, rows)).collect()[0].asDict())


def _sums(schema: SchemaVersion, rows: DataFrame) -> list[Column]:
    digest = _hash(schema, {f.name: f.dataType for f in rows.schema.fields})
    mask = F.lit((1 << _HALF) - 1)
    low, high = digest.bitwiseAND(mask), F.shiftright(digest, _HALF).bitwiseAND(mask)
    return [F.count(F.lit(1)).alias("rows"), F.sum(low).alias("low"), F.sum(high).alias("high")]


def _read(sums: Mapping[str, Any]) -> HistorySum:
    return HistorySum(int(sums["rows"]), ((int(sums["high"] or 0) << _HALF) + int(sums["low"] or 0)) % (1 << _BITS))


def _hash(schema: SchemaVersion, types: Mapping[str, DataType]) -> Column:
    numbers = {c.name: c.attnum for c in schema.columns}
    order = tagged({name: attribute_number(name, numbers) for name in types})
    return F.xxhash64(*(part for tag, name in order for part in _parts(tag, col(name), types[name])))


def _parts(tag: Tag, value: Column, kind: DataType) -> Iterator[Column]:
    """Give a value with its column's tag; nothing for NULL, which the hash passes over."""
    if tag is not None:
        yield F.when(value.isNotNull(), F.lit(tag))
    yield from _normal(value, kind)


def _normal(value: Column, kind: DataType) -> Iterable[Column]:
    """Return the value at its kind's widest type."""
    if isinstance(kind, _WHOLE):
        return [value.cast("bigint")]
    if isinstance(kind, FloatType | DoubleType):
        wide = value.cast("double")
        # The hash takes -0 for 0.
        return [wide, F.when(wide == 0, wide.cast("string"))]
    if isinstance(kind, DecimalType):
        return [value.cast(f"decimal({_DECIMAL_DIGITS},{kind.scale})")]
    if isinstance(kind, ArrayType):
        # NULL elements differ from missing ones; under some settings a NULL array has the size -1.
        element = kind.elementType
        return [
            F.when(value.isNotNull(), F.size(value)),
            F.transform(value, lambda e: F.struct(e.isNull(), *_normal(e, element))),
        ]
    return [value]
