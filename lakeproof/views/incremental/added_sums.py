"""Counts, sums and averages kept up by adding: the query over the changes alone, and the view's own rows of their groups.

Which queries are of this kind is read from the plan (`sum_plans`). Nothing is stored beside the view's columns. What they
leave open is not guessed: a sum that becomes 0 may be that of no values, and a group whose columns all become 0 may have no
rows. Such a refresh computes the touched groups anew (`touched_keys`), as does one of a view with other aggregates. A view
with `count(*)`, and with `count(x)` beside `sum(x)`, leaves nothing open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeproof.hidden_columns import DUP, KEY
from lakeproof.lake.rows.columns import digest_of_columns
from lakeproof.views.incremental.collected import (
    DUP_BITS,
    NotIncrementalError,
    Signed,
    StoredView,
    Values,
    collect_signed,
    correction_of,
    frame_of,
)
from lakeproof.views.incremental.correction import ViewCorrection
from lakeproof.views.incremental.sum_plans import Output, SumPlan

_DRIFT = "a group would have fewer rows than none: the view was not its query's answer"
# Spark divides decimals to this scale, then rounds to the type's.
_DIVISION_SCALE = 39
# Spark adds whole numbers up as doubles, in any order. So many of 32 bits stay below 2^53, up to where each is one.
_EXACT_ROWS = 1 << 22
# A value of a column as Python has it: a number, or None.
_Value: TypeAlias = Any
_Values: TypeAlias = Mapping[str, _Value]
_Key: TypeAlias = tuple[object, ...]


class _OpenError(Exception):
    """The view's columns do not decide it."""


@dataclass(slots=True)
class _Group:
    """A group's row in the view (None: it has none, else its number there), and its answers over the changes."""

    key: int
    stored: int | None = None
    came: list[_Values] = field(default_factory=list)
    went: list[_Values] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TouchedGroups:
    """The groups whose rows changed: their values in the columns `names`, and the query's answers over the changes."""

    names: tuple[str, ...]
    values: Values
    answers: Signed
    groups: Mapping[_Key, _Group]


def touched_groups(sums: SumPlan, came: list[DataFrame], went: list[DataFrame]) -> TouchedGroups | None:
    """Return the groups that the query's answers over what came and went are about; None if they are too many."""
    answers = collect_signed(came, went)
    if answers is None:
        return None
    names = tuple(output.name for output in sums.of("group"))
    groups = _groups(sums, names, answers)
    keys = answers.rows.take(pa.array([group.key for group in groups.values()], pa.int64())).select(names)
    fields = {f.name: f for f in answers.schema.fields}
    values = Values(keys, T.StructType([fields[name] for name in names]))
    return TouchedGroups(names, values, answers, groups)


def collected_correction(sums: SumPlan, touched: TouchedGroups, stored: StoredView) -> ViewCorrection | None:
    """Return the correction by adding the answers to the view's rows; None if that does not decide it."""
    persisted = stored.with_values(touched.names, touched.values)
    if persisted is None:
        return None
    _meet(touched.groups, persisted, touched.names, is_grouped=bool(touched.names))
    try:
        with localcontext(Context(prec=200)):
            return _correction(sums, touched.groups, touched.answers, persisted, stored)
    except _OpenError:
        return None


def _groups(sums: SumPlan, names: Sequence[str], answers: Signed) -> dict[_Key, _Group]:
    groups: dict[_Key, _Group] = {}
    added = [output.name for output in sums.of("rows", "count", "sum")]
    values = {name: answers.rows.column(name).to_pylist() for name in added}
    for row, (key, sign) in enumerate(zip(_keys(answers.rows, names), answers.signs, strict=True)):
        group = groups.setdefault(key, _Group(row))
        (group.came if sign > 0 else group.went).append({name: values[name][row] for name in added})
    return groups


def _keys(rows: pa.Table, names: Sequence[str]) -> list[_Key]:
    """Return each row's values in these columns; dates and times as whole numbers, as Python's end with the year 9999."""
    lists = [_plain(rows.column(name)).to_pylist() for name in names]
    return list(zip(*lists, strict=True)) if lists else [()] * rows.num_rows


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def _meet(groups: Mapping[_Key, _Group], persisted: pa.Table, names: Sequence[str], *, is_grouped: bool) -> None:
    """Let each group know its row in the view."""
    for row, key in enumerate(_keys(persisted, names)):
        if groups[key].stored is not None:
            raise NotIncrementalError("the view has a group twice: it was not its query's answer")
        groups[key].stored = row
    if not is_grouped and not persisted.num_rows:
        raise NotIncrementalError("the view has no row: it was not its query's answer")


def _correction(
    sums: SumPlan, groups: Mapping[_Key, _Group], answers: Signed, persisted: pa.Table, stored: StoredView
) -> ViewCorrection:
    names = [output.name for output in sums.outputs if output.role != "group"]
    columns = {name: persisted.column(name).to_pylist() for name in names}
    types = {f.name: f.dataType for f in answers.schema.fields}
    gone, keys, rows = list[int](), list[int](), list[_Values]()
    for group in groups.values():
        old = None if group.stored is None else {name: columns[name][group.stored] for name in names}
        new = _new(sums, old, group, types)
        if new == old:
            continue
        if group.stored is not None:
            gone.append(group.stored)
        if new is not None:
            keys.append(group.key)
            rows.append(new)
    retracted = persisted.take(pa.array(gone, pa.int64()))
    return correction_of(stored, retracted, _images(sums, answers, keys, rows, stored), len(rows))


def _images(
    sums: SumPlan, answers: Signed, keys: Sequence[int], rows: Sequence[_Values], stored: StoredView
) -> DataFrame | None:
    if not rows:
        return None
    of_groups = answers.rows.take(pa.array(keys, pa.int64()))
    arrays = {
        output.name: of_groups.column(output.name)
        if output.role == "group"
        else pa.array([row[output.name] for row in rows], of_groups.schema.field(output.name).type)
        for output in sums.outputs
    }
    schema = T.StructType([f for f in answers.schema.fields if f.name != KEY])
    frame = frame_of(stored.session, pa.table(arrays), schema)
    # No two groups have the same row.
    frame = frame.withColumn(KEY, digest_of_columns(frame, frame.columns))
    return frame.withColumn(DUP, F.lit((int(stored.number) << DUP_BITS) + 1))


def _new(sums: SumPlan, old: _Values | None, group: _Group, types: Mapping[str, T.DataType]) -> _Values | None:
    """Return what a group's row becomes, None if it has no rows any more."""
    counts = {o.name: _total(o.name, old, group) for o in sums.of("rows", "count")}
    totals = {o.name: _total(o.name, old, group) for o in sums.of("sum")}
    if any(count < 0 for count in counts.values()):
        raise NotIncrementalError(_DRIFT)
    if sums.of("group") and not _is_there(sums, group, counts, totals):
        return None
    new = dict(counts)
    for output in sums.of("sum"):
        new[output.name] = _sum(output, old, group, counts, totals[output.name])
        _check_range(new[output.name], types[output.name])
    for output in sums.of("average"):
        new[output.name] = _average(output, new, types[output.name])
    return new


def _total(name: str, old: _Values | None, group: _Group) -> _Value:
    before = None if old is None else old[name]
    came = sum(values[name] or 0 for values in group.came)
    return (before or 0) + came - sum(values[name] or 0 for values in group.went)


def _is_there(sums: SumPlan, group: _Group, counts: _Values, totals: _Values) -> bool:
    """True if the group has rows."""
    something = any(counts.values()) or any(totals.values())
    rows = sums.of("rows")
    if rows:
        number = counts[rows[0].name]
        if not number and something:
            raise NotIncrementalError(_DRIFT)
        return bool(number)
    if group.went and not something:
        raise _OpenError
    return True


def _sum(output: Output, old: _Values | None, group: _Group, counts: _Values, total: _Value) -> _Value:
    """Return a sum, or None for that of no values."""
    if output.counted is not None:
        return total if counts[output.counted] else None
    if any(values[output.name] is not None for values in group.went):
        if not total:
            raise _OpenError
        return total
    is_none = old is None or old[output.name] is None
    return None if is_none and all(values[output.name] is None for values in group.came) else total


def _check_range(value: _Value, kind: T.DataType) -> None:
    """Raise _OpenError if a sum's type can't hold it: what becomes of it is for Spark to say."""
    if value is None:
        return
    if isinstance(kind, T.DecimalType):
        if abs(value) >= Decimal(10) ** (kind.precision - kind.scale):
            raise _OpenError
    elif not -(1 << 63) <= value < 1 << 63:
        raise _OpenError


def _average(output: Output, new: _Values, kind: T.DataType) -> _Value:
    """Return an average, as Spark divides the sum by the count."""
    total, count = new[str(output.summed)], new[str(output.counted)]
    if total is None or not count:
        return None
    if isinstance(kind, T.DecimalType):
        exact = (Decimal(total) / Decimal(count)).quantize(Decimal(1).scaleb(-_DIVISION_SCALE), ROUND_HALF_UP)
        return exact.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
    if count >= _EXACT_ROWS:
        raise _OpenError
    return float(total) / float(count)
