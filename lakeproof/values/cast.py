"""The one caster: PostgreSQL's text to the lake's types, whole columns at a time.

`types.py` has a column's type. The stream and COPY share this caster, so a value can't depend on how it arrived.

Invariant nothing-guessed: a text is cast if it has exactly the form PostgreSQL prints and the type holds it exactly. A text
that PostgreSQL prints and the type can't hold (NaN in a decimal, infinity or a year outside 1 to 9999 in a date, an array of
two dimensions) is an *overflow*: NULL in the column, the text itself in `_lp_text`. Every other text is *malformed*, as are
bytes that are not UTF-8: NULL in the column, and in `_lp_text` under a key that marks it (`MARK`), so that applying the row
is refused: it was read with a wrong schema, or the settings are not the pinned ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.schema import Column
from lakeproof.values.forms_in_arrow import is_hex, typed_values
from lakeproof.values.parse.arrays import Flags, Ints, split_arrays
from lakeproof.values.types import Form, TypeKind, arrow_type, kind_of

# Begins the key of a malformed text in `_lp_text`, and so the whole JSON object: `{"!3":"a"}`. Bytes that are not UTF-8 are
# written in hexadecimal digits, `{"!x3":"ff"}`.
MARK = "!"
# The beginning of a row's text if one of its values is malformed.
MARKED = f'{{"{MARK}'
_MARK_OCTETS = "!x"
# The beginning of the text of an array of several dimensions, or counted from another number than 1.
_SHIFTED = r"\A(?:\{\{|\[)"


class CastError(ValueError):
    """Texts that PostgreSQL does not print for the column's type; the message has no value in it.

    Raised by callers that can't keep a malformed text.
    """

    def __init__(self, column: Column, count: int) -> None:
        super().__init__(
            f"column {column.name}: {count} text(s) are not of the form of {column.kind} ({column.type_name})"
        )
        self.column = column
        self.count = count


@dataclass(frozen=True, slots=True)
class Cast:
    """A column's typed values, and which texts did not fit.

    `values` has the column's Arrow type and the length of the texts; `overflow` and `malformed` are boolean arrays of that
    length without nulls, or None if no text is one; no text is both.
    """

    values: pa.Array
    overflow: pa.Array | None
    malformed: pa.Array | None = None

    @property
    def fits(self) -> bool:
        """True if every text fitted."""
        return self.overflow is None and self.malformed is None

    def refuse_malformed(self, column: Column) -> Cast:
        """Return this cast; raises CastError if a text is malformed."""
        if self.malformed is not None:
            raise CastError(column, pc.sum(self.malformed).as_py())
        return self


def cast_column(texts: pa.Array, column: Column) -> Cast:
    """Cast PostgreSQL's output texts (an array like strings or binary, NULL for NULL) to the column's type."""
    if pa.types.is_string(texts.type):
        return _cast(texts, column)
    try:
        return _cast(texts.cast(pa.string()), column)
    except pa.ArrowInvalid:
        undecodable = _refused(texts, lambda some: some.cast(pa.string()))
    cast = _cast(_without(texts, undecodable).cast(pa.string()), column)
    return Cast(cast.values, cast.overflow, _either(cast.malformed, undecodable))


def text_overflow(columns: Sequence[tuple[Column, pa.Array, Cast]], length: int | None = None) -> pa.Array:
    """Return the `_lp_text` column; `columns` has (column, texts, their cast), at least for each column that did not fit.

    A row in which all texts fitted is NULL; any other is a JSON object from attribute number to exact text, marked texts
    first. `length` is the number of rows, needed because `columns` may be empty.
    """
    rows: dict[int, dict[str, str]] = {}
    # Marked ones first, so that the first key shows if there are any.
    for column, texts, cast in columns:
        length = len(texts)
        for row, text in _texts_where(texts, cast.malformed):
            rows.setdefault(row, {}).update([_marked(column, text)])
    for column, texts, cast in columns:
        for row, text in _texts_where(texts, cast.overflow):
            rows.setdefault(row, {})[str(column.attnum)] = text if isinstance(text, str) else text.decode()
    if length is None:
        raise ValueError("the number of rows is unknown: neither columns nor a length")
    result: list[str | None] = [None] * length
    for row, texts_by_attnum in rows.items():
        result[row] = json.dumps(texts_by_attnum, ensure_ascii=False, separators=(",", ":"))
    return pa.array(result, pa.string()) if rows else pa.nulls(length, pa.string())


def _texts_where(texts: pa.Array, chosen: pa.Array | None) -> Iterator[tuple[int, str | bytes]]:
    if chosen is not None:
        rows = np.flatnonzero(chosen.to_numpy(zero_copy_only=False))
        yield from zip(rows.tolist(), texts.take(pa.array(rows)).to_pylist(), strict=True)


def _marked(column: Column, text: str | bytes) -> tuple[str, str]:
    """Return the key and text of a malformed text; a column no longer in the catalog has only its name."""
    name = str(column.attnum or column.name)
    if isinstance(text, str):
        return MARK + name, text
    try:
        return MARK + name, text.decode()
    except UnicodeDecodeError:
        return _MARK_OCTETS + name, text.hex()


def _cast(texts: pa.Array, column: Column) -> Cast:
    kind = kind_of(column)
    if kind.element is not None:
        return _arrays(texts, column, kind.element.name)
    if kind.fits is None:
        return Cast(texts, None)
    fits = _fits(texts, kind, kind.fits(column.typmod))
    if fits is None:
        return _typed(texts, column)
    beyond = pc.fill_null(pc.invert(fits), False)
    printed = None if kind.beyond is None else pc.match_substring_regex(texts, _whole(kind.beyond))
    overflow = None if printed is None else pc.and_(beyond, pc.fill_null(printed, False))
    malformed = beyond if overflow is None else pc.and_not(beyond, overflow)
    cast = _typed(_without(texts, beyond), column)
    return Cast(cast.values, _some(overflow), _either(cast.malformed, malformed))


def _arrays(texts: pa.Array, column: Column, of: str) -> Cast:
    """Cast all elements of all rows in one column; a row that does not fit, or has such an element, is NULL."""
    elements = split_arrays(texts)
    cast = _cast(elements.texts, replace(column, kind=of))
    values, counts = cast.values, np.diff(elements.offsets)
    malformed: Flags = elements.unknown
    overflow: Flags = elements.other
    if not cast.fits:
        row = np.repeat(np.arange(len(texts)), counts)
        malformed = _with_rows(malformed, row, cast.malformed)
        overflow = _with_rows(overflow, row, cast.overflow) & ~malformed
        # Parquet's writer refuses elements in a NULL.
        values = values.filter(pa.array(~(malformed | overflow)[row]))
        counts = np.where(malformed | overflow, 0, counts)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    null = texts.is_null().to_numpy(zero_copy_only=False) | malformed | overflow
    mask = pa.array(null) if null.any() else None
    lists = pa.ListArray.from_arrays(pa.array(offsets), values, type=arrow_type(column), mask=mask)
    return Cast(lists, _some(pa.array(overflow)), _some(pa.array(malformed)))


def _with_rows(rows: Flags, row: Ints, elements: pa.Array | None) -> Flags:
    """Return `rows`, and the rows that have one of the chosen elements."""
    result: Flags = rows.copy()
    if elements is not None:
        result[row[elements.to_numpy(zero_copy_only=False)]] = True
    return result


def _some(chosen: pa.Array | None) -> pa.Array | None:
    return chosen if chosen is not None and pc.any(chosen, min_count=0).as_py() else None


def _either(one: pa.Array | None, other: pa.Array) -> pa.Array | None:
    return _some(other if one is None else pc.or_(one, other))


def _without(texts: pa.Array, chosen: pa.Array) -> pa.Array:
    return pc.if_else(chosen, pa.scalar(None, texts.type), texts)


def _refused(texts: pa.Array, read: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return the texts that Arrow can't read: it stops at the first, so halves are tried."""
    pieces = []
    waiting = [texts]
    while waiting:
        piece = waiting.pop()
        try:
            read(piece)
        except pa.ArrowInvalid:
            if len(piece) == 1:
                pieces.append(np.ones(1, np.bool_))
            else:
                middle = len(piece) // 2
                waiting += [piece[middle:], piece[:middle]]
        else:
            pieces.append(np.zeros(len(piece), np.bool_))
    return pa.array(np.concatenate(pieces))


def unheld_pattern(column: Column) -> str | None:
    """Return the pattern that is in a column's texts in `_lp_text`, and in no text of a value that its type holds.

    None for kinds that hold every value.
    """
    kind = kind_of(column)
    each = kind if kind.element is None else kind.element
    unheld = each.beyond if each.unheld is None else each.unheld(column.typmod)
    if kind.element is None:
        return None if unheld is None else _whole(unheld)
    # Neither engine's patterns may repeat over the elements: Java would need stack for each of them.
    return _SHIFTED if unheld is None else rf'{_SHIFTED}|[{{,]"?(?:{unheld})"?[,}}]'


def _whole(pattern: str) -> str:
    return rf"\A(?:{pattern})\z"


def _fits(texts: pa.Array, kind: TypeKind, pattern: str) -> pa.Array | None:
    """Return the texts that have the form of values that the type holds; None if all have."""
    if kind.form is Form.OCTETS and is_hex(texts):
        return None
    fits = pc.match_substring_regex(texts, _whole(pattern))
    return None if pc.all(fits, min_count=0).as_py() else fits


def _typed(texts: pa.Array, column: Column) -> Cast:
    """Cast texts of the right form; those that are no values all the same (2023-02-30, 40000 as int2) are malformed."""
    to, form = arrow_type(column), kind_of(column).form
    try:
        values = typed_values(texts, form, to)
    except pa.ArrowInvalid:
        wrong = _refused(texts, partial(typed_values, form=form, to=to))
        return Cast(typed_values(_without(texts, wrong), form, to), None, wrong)
    if form is Form.FLOAT:
        infinite = pc.fill_null(pc.is_inf(values), False)
        if pc.any(infinite, min_count=0).as_py():
            rounded = _some(pc.and_not(infinite, pc.fill_null(pc.ends_with(texts, "Infinity"), False)))
            return Cast(values if rounded is None else _without(values, rounded), None, rounded)
    return Cast(values, None)
