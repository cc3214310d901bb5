"""A table's rows for Great Expectations' pandas engine, so that each verdict is the one that Spark would give.

Spark gives the verdict if anything could differ (`SparkNeededError` has the reason): an expectation or argument that is not
listed here, a kind that pandas has no exact value for, more bytes than one process holds. Whole numbers, decimals, texts and
times are handed over as Python's objects, so NULL is None and nothing becomes a float; floats as they are, if none is NaN.

Calling Great Expectations belongs to `evaluate`, reading files to `lakeproof.lake.delta.arrow_rows`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.expectations.configured import Expectation
from lakeproof.lake.delta.arrow_rows import DeltaRows
from lakeproof.proof.lake.in_arrow import TooLargeError, read_rows

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # it ships no types

# Of the columns that are looked at. Their values are held all at once, as objects of several times the size.
BYTES_MAX = 256 << 20

_OF_ROWS = ("expect_table_row_count_to_equal", "expect_table_row_count_to_be_between")
_OF_NAMES = (
    "expect_column_to_exist",
    "expect_table_column_count_to_equal",
    "expect_table_column_count_to_be_between",
    "expect_table_columns_to_match_ordered_list",
    "expect_table_columns_to_match_set",
)
_PRESENT = ("expect_column_values_to_not_be_null",)
_BY_VALUE = (
    "expect_column_values_to_be_null",
    "expect_column_values_to_be_unique",
    "expect_compound_columns_to_be_unique",
)
_IN_SET = ("expect_column_values_to_be_in_set", "expect_column_values_to_not_be_in_set")
_BETWEEN = ("expect_column_values_to_be_between",)
_ENDS = ("expect_column_max_to_be_between", "expect_column_min_to_be_between")
_LENGTHS = ("expect_column_value_lengths_to_equal", "expect_column_value_lengths_to_be_between")
_REGEX = ("expect_column_values_to_match_regex", "expect_column_values_to_not_match_regex")
_BOUNDS = ("min_value", "max_value", "strict_min", "strict_max")
# The arguments that were held equal under both engines, beside the columns and `mostly`.
_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_OF_ROWS, ("value", "min_value", "max_value")),
    **dict.fromkeys(_OF_NAMES, ("value", "min_value", "max_value", "column_set", "exact_match", "column_index")),
    **dict.fromkeys((*_PRESENT, *_BY_VALUE), ()),
    **dict.fromkeys(_IN_SET, ("value_set",)),
    **dict.fromkeys((*_BETWEEN, *_ENDS), _BOUNDS),
    **dict.fromkeys(_LENGTHS, ("value", *_BOUNDS)),
    **dict.fromkeys(_REGEX, ("regex",)),
}
# What Java's and Python's patterns mean alike, of printable ASCII: no look-around, flags, references or nested sets.
_SAME_REGEX = re.compile(
    r"(?:[A-Za-z0-9_@%&=~:;,<>!\"'`#/ -]|\\[dDwWsSbB]|\\[.^$*+?()\[\]{}|/@-]|[.^$|]|\((?:\?:)?(?=[^?*+{])|\)"
    r"|\[\^?(?:[A-Za-z0-9_@%=:;,.!#/ +*$-]|\\[dDwWsS.\-\]\[])+\]|(?<=[^*+?{(|^])(?:[*+?]|\{\d+(?:,\d*)?\})\??)*"
)
_NOT_PRINTABLE = r"[^\x20-\x7e]"
_EXACT_IN_FLOAT = 1 << 53
_LONG_DIGITS, _DECIMAL_DIGITS = 20, 38


class SparkNeededError(Exception):
    """A table whose expectations Spark evaluates; its text is the reason."""


def pandas_frame(delta: DeltaRows, names: Sequence[str], checks: Iterable[Expectation], row_bytes: int) -> pd.DataFrame:
    """Return what the expectations look at of a table with the columns `names`; raises SparkNeededError, or as `batches`."""
    checks = list(checks)
    columns = _looked_at(checks, names)
    try:
        read = [*columns] or [delta.schema.names[0]]
        batches = list(read_rows(delta, read, row_bytes, BYTES_MAX))
    except TooLargeError:
        raise SparkNeededError(f"the columns take more than {BYTES_MAX >> 20} MiB") from None
    rows = pa.Table.from_batches(batches, pa.schema([delta.schema.field(name) for name in read]))
    values = {name: _values(rows.column(name), of_column) for name, of_column in columns.items()}
    import pandas as pd

    index = pd.RangeIndex(rows.num_rows)
    if any(check.type in _OF_NAMES for check in checks):
        # Of the others only the names are looked at.
        nothing = pd.Series([None] * rows.num_rows, index, dtype=object)
        values = {name: values.get(name, nothing) for name in names}
    return pd.DataFrame(values, index)


def _looked_at(checks: Iterable[Expectation], names: Sequence[str]) -> dict[str, list[Expectation]]:
    """Return the columns whose values are looked at, each with its expectations."""
    columns = dict[str, list[Expectation]]()
    for check in checks:
        if check.type not in _ARGUMENTS:
            raise SparkNeededError(f"{check.type} is evaluated by Spark alone")
        allowed = {"column", "column_list", "mostly", *_ARGUMENTS[check.type]}
        for argument in check.kwargs:
            if argument not in allowed:
                raise SparkNeededError(f"{check.type} with {argument} is evaluated by Spark alone")
        for name in check.columns if check.type not in _OF_NAMES else ():
            if name not in names:
                # Spark also finds a column under its name in another case, and says in its own way that there is none.
                raise SparkNeededError(f"an expectation names {name[:80]}, which is no column")
            columns.setdefault(name, []).append(check)
    return columns


def _values(column: pa.ChunkedArray, checks: Sequence[Expectation]) -> pd.Series:
    """Return a column's values for these expectations."""
    import pandas as pd

    if all(check.type in _PRESENT for check in checks):
        present = column.is_valid().to_pylist()
        return pd.Series([True if there else None for there in present], dtype=object)
    kind = column.type
    for check in checks:
        _check_values(check, column)
    if pa.types.is_floating(kind):
        if pa.types.is_float32(kind) or pc.any(pc.invert(pc.is_finite(column))).as_py():
            raise SparkNeededError("a float of four octets, NaN or an infinity is compared by Spark alone")
        return pd.Series(column.to_numpy(), dtype="float64")
    try:
        return pd.Series(column.to_pylist(), dtype=object)
    except (ValueError, OverflowError):
        raise SparkNeededError("Python has no date before the year 1 or after 9999") from None


def _check_values(check: Expectation, column: pa.ChunkedArray) -> None:
    """Raise SparkNeededError unless both engines compare the column's values alike with the expectation's arguments."""
    kind, given = column.type, check.kwargs
    if check.type in _PRESENT:
        return
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        raise SparkNeededError(f"values of {kind} are compared by Spark alone")
    if check.type in _BY_VALUE:
        return
    fits: Callable[[object], bool] | None = None
    arguments: Sequence[object] = ()
    if check.type in _IN_SET:
        arguments, fits = given.get("value_set") or (None,), _argument_of(kind)
    elif check.type in (*_BETWEEN, *_ENDS):
        arguments = [given[name] for name in ("min_value", "max_value") if given.get(name) is not None]
        fits = None if pa.types.is_string(kind) or pa.types.is_boolean(kind) else _argument_of(kind)
        if check.type in _ENDS and column.null_count == len(column):
            raise SparkNeededError("the greatest of no values is found by Spark alone")
    elif check.type in _LENGTHS and pa.types.is_string(kind):
        arguments = [given[name] for name in ("value", "min_value", "max_value") if given.get(name) is not None]
        fits = _is_whole
    elif check.type in _REGEX and pa.types.is_string(kind):
        arguments, fits = [given.get("regex")], _is_same_regex
        if pc.any(pc.match_substring_regex(column, _NOT_PRINTABLE)).as_py():
            raise SparkNeededError("patterns over other than printable ASCII are matched by Spark alone")
    if fits is None or not isinstance(arguments, list | tuple) or not all(map(fits, arguments)):
        raise SparkNeededError(f"{check.type} over values of {kind} is evaluated by Spark alone with these arguments")


def _argument_of(kind: pa.DataType) -> Callable[[object], bool] | None:
    """Return the test of an argument that both engines compare alike with values of the type; None if there is none."""
    if pa.types.is_integer(kind):
        return _is_whole
    if pa.types.is_float64(kind):
        return _is_exact_float
    if pa.types.is_decimal(kind) and max(kind.precision - kind.scale, _LONG_DIGITS) + kind.scale <= _DECIMAL_DIGITS:
        return _is_whole
    if pa.types.is_string(kind):
        return lambda value: isinstance(value, str)
    return (lambda value: isinstance(value, bool)) if pa.types.is_boolean(kind) else None


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63


def _is_exact_float(value: Any) -> bool:
    if isinstance(value, float):
        return value - value == 0
    return _is_whole(value) and abs(value) <= _EXACT_IN_FLOAT


def _is_same_regex(value: object) -> bool:
    """True for a pattern of what means the same in Java, if Python takes it: `x{2}{3}` and `$*` are Java's alone."""
    if not isinstance(value, str) or _SAME_REGEX.fullmatch(value) is None:
        return False
    try:
        re.compile(value)
    except (re.error, OverflowError):
        return False
    return True
