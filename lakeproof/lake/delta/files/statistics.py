"""Delta's statistics of a data file, as its entry in the log has them, from the file's Parquet footer alone.

No row is read and no JVM is needed. Making the entry belongs to `link_commit`, checking that the file fits to `links`.

A bound that the log has is never too tight: readers leave out files by it. A missing one only costs a reader the file. So
there is none where the footer's says less than it seems:

    float           Arrow leaves NaN out of Parquet's bounds, and in Spark NaN is greater than every number
    a time that Python does not have (after the year 9999)
    long text       Arrow has no bounds for a column with a value of more than 4 KB
    list            a footer counts the elements, not the lists

Differences from what Spark writes for the same rows, none of which loses a row: no bounds for floats, no counts of NULL for
lists, and the upper bound of times is the next millisecond, not the one before it. (Spark adds that millisecond when it
reads; others may not.)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow.parquet as pq

# The least and the greatest value.
Bounds: TypeAlias = tuple[Any, Any]
# Delta's own limit of a text in its statistics, in code points.
TEXT_LENGTH_MAX = 32
# What Delta puts at the end of an upper bound that was cut off there: a character that is above the one cut off.
_ABOVE_ASCII, _ABOVE_ALL = "\x7f", "\U0010ffff"
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  as many milliseconds from it with a time zone as without
_MILLISECOND = timedelta(milliseconds=1)
_WHOLE = frozenset({"tinyint", "smallint", "int", "bigint"})
_TIMES = frozenset({"timestamp", "timestamp_ntz"})


@dataclass(frozen=True, slots=True)
class _Counted:
    """A column over all row groups: its NULLs, and its bounds if every row group with values has them."""

    nulls: int
    bounds: Bounds | None


def statistics_text(footer: pq.FileMetaData, columns: Mapping[str, str]) -> str:
    """Return the statistics as JSON; `columns`: names in the file → Spark types, of those that get statistics.

    A column that the file lacks reads as NULL in every row.
    """
    places = {column.path: i for i, column in enumerate(_columns(footer)) if column.max_repetition_level == 0}
    existing = set(footer.schema.to_arrow_schema().names)
    low: dict[str, str] = {}
    high: dict[str, str] = {}
    nulls: dict[str, str] = {}
    for name, spark_type in columns.items():
        if name not in existing:
            nulls[name] = str(footer.num_rows)
            continue
        counted = _count(footer, places[name]) if name in places else None
        if counted is None:
            continue
        nulls[name] = str(counted.nulls)
        if counted.bounds is None:
            continue
        lower, upper = _lower(counted.bounds[0], spark_type), _upper(counted.bounds[1], spark_type)
        low |= {} if lower is None else {name: lower}
        high |= {} if upper is None else {name: upper}
    parts = {"minValues": low, "maxValues": high, "nullCount": nulls}
    members = [f'"numRecords":{footer.num_rows}', *(f'"{part}":{_object(values)}' for part, values in parts.items())]
    return "{" + ",".join([*members, '"tightBounds":true']) + "}"


def has_float_bounds(footer: pq.FileMetaData) -> bool:
    """True if the footer has bounds of floats: Spark would skip row groups by them, and so lose rows with NaN."""
    floats = [i for i, c in enumerate(_columns(footer)) if c.physical_type in {"FLOAT", "DOUBLE"}]
    return any(
        (statistics := footer.row_group(group).column(place).statistics) is not None and statistics.has_min_max
        for group in range(footer.num_row_groups)
        for place in floats
    )


def _columns(footer: pq.FileMetaData) -> Iterable[pq.ColumnSchema]:
    return (footer.schema.column(i) for i in range(len(footer.schema)))


def _count(footer: pq.FileMetaData, place: int) -> _Counted | None:
    """Return what the row groups' statistics come to; None if one has no count of NULL."""
    nulls, lows, highs, bounded = 0, [], [], True
    for group in range(footer.num_row_groups):
        column = footer.row_group(group).column(place)
        statistics = column.statistics
        if statistics is None or not statistics.has_null_count:
            return None
        nulls += statistics.null_count
        both = _bounds(statistics)
        if both is not None:
            lows.append(both[0])
            highs.append(both[1])
        # Else it has nothing but NULL, or values that have no bounds.
        elif statistics.null_count < footer.row_group(group).num_rows:
            bounded = False
    return _Counted(nulls, (min(lows), max(highs)) if bounded and lows else None)


def group_bounds(footer: pq.FileMetaData, group: int, name: str) -> Bounds | None:
    """Return the least and the greatest value of a column in a row group; None if there are none, or no such column.

    Nor are there of dates and times that Python does not have, after the year 9999 or before the year 1.
    """
    place = next((i for i, column in enumerate(_columns(footer)) if column.path == name), None)
    return None if place is None else _bounds(footer.row_group(group).column(place).statistics)


def _bounds(statistics: pq.Statistics | None) -> Bounds | None:
    if statistics is None or not statistics.has_min_max:
        return None
    try:
        return statistics.min, statistics.max
    except (OverflowError, ValueError):
        return None


def _lower(value: Any, spark_type: str) -> str | None:
    """Return a lower bound as JSON, None if there is none for the type."""
    if spark_type == "string":
        return json.dumps(_text(value)[:TEXT_LENGTH_MAX], ensure_ascii=False)
    if spark_type in _TIMES:
        return _time(_since_1970(value) // _MILLISECOND, spark_type)
    return _exact(value, spark_type)


def _upper(value: Any, spark_type: str) -> str | None:
    """Return an upper bound as JSON, None if there is none for the type, or none that the log can have."""
    if spark_type == "string":
        above = _cut_above(_text(value))
        return None if above is None else json.dumps(above, ensure_ascii=False)
    if spark_type in _TIMES:
        # Rounded up; the last millisecond of the year 9999 has no successor.
        return _time(-(-_since_1970(value) // _MILLISECOND), spark_type)
    return _exact(value, spark_type)


def _exact(value: Any, spark_type: str) -> str | None:
    """Return a bound of a type whose values stand in the log as they are."""
    if spark_type in _WHOLE:
        return str(int(value))
    if spark_type.startswith("decimal"):
        return format(Decimal(value), "f")
    if spark_type == "date" and isinstance(value, date):
        return json.dumps(value.isoformat())
    return None


def _cut_above(text: str) -> str | None:
    """Return the text, or one of its first characters that is above every text which begins with these."""
    if len(text) <= TEXT_LENGTH_MAX:
        return text
    begin, after = text[:TEXT_LENGTH_MAX], text[TEXT_LENGTH_MAX]
    if after < _ABOVE_ASCII:
        return begin + _ABOVE_ASCII
    return begin + _ABOVE_ALL if after < _ABOVE_ALL else None


def _since_1970(value: datetime) -> timedelta:
    return (value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value) - _EPOCH


def _time(milliseconds: int, spark_type: str) -> str | None:
    try:
        text = (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")
    except OverflowError:
        return None
    return json.dumps(text + ("Z" if spark_type == "timestamp" else ""))


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _object(members: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{value}" for name, value in members.items()) + "}"
