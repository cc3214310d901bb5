"""The net change of a table, no matter who computed it: the rows that go and come; keys in memory, and their check.

`lakeproof.lake.fold` computes it from changes, in Spark's frames or Arrow's tables, and `lakeproof.lake.delta` commits it;
neither knows the other, and nothing is computed or committed here.

Keys of a range's rows in memory have numbers, and say whether a key's first change presupposes a row. The check of that is
by counts alone. The same by Spark belongs to `correction`, finding rows to `lake.delta.search`. Spark is not imported here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.hidden_columns import OP, ORD, scratch
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut

if TYPE_CHECKING:
    import numpy.typing as npt


# Spark's DataFrame, or Arrow's Table.
Frame = TypeVar("Frame")
Part = TypeVar("Part", pa.Table, pa.RecordBatch)


@dataclass(frozen=True, slots=True)
class Removed(Generic[Frame]):
    """The rows that go by their keys: those whose `key` columns have the values of one of `rows`.

    `rows` may have other columns, and keys of which the table has no row. `null_safe`: NULL is a key value like any other.
    `presupposed`: so many of the keys, each of which is there once, are of rows that must exist, as their column `FIRST`
    says, and of the others there may be none. None: not known.
    """

    key: tuple[str, ...]
    rows: Frame
    null_safe: bool = False
    presupposed: int | None = None


@dataclass(frozen=True, slots=True)
class AllRows:
    """All rows that were there before go; of `presupposed` keys a row must exist all the same, which is refused.

    `new_columns`: the rows that come bring their own columns in place of the table's.
    """

    presupposed: int = 0
    new_columns: bool = False


@dataclass(frozen=True, slots=True)
class NetChange(Generic[Frame]):
    """The rows that go, and those that come, `images`, with all the table's columns; None: no row."""

    removed: Removed[Frame] | AllRows | None = None
    images: Frame | None = None


def unchecked(removed: Removed[Frame] | AllRows | None) -> Removed[Frame] | AllRows | None:
    """Return the same rows that go, of which none is presupposed."""
    match removed:
        case Removed():
            return replace(removed, presupposed=None)
        case AllRows():
            return replace(removed, presupposed=0)
    return None


class Unsupported(Exception):  # noqa: N818  not an error: another way takes over
    """A table or change that this process leaves to Spark, or a way of committing to another; nothing has been written."""


class UnfitError(Unsupported):
    """Changes without the rows before them that they presuppose: Spark says what is wrong, unless a copy puts it right."""


def in_memory(parts: Iterable[Part], bytes_max: int, reason: str) -> list[Part]:
    """Return all parts; raises `Unsupported` with the reason if they take more than so many bytes."""
    kept, size = list[Part](), 0
    for part in parts:
        size += part.nbytes
        if size > bytes_max:
            raise Unsupported(reason)
        kept.append(part)
    return kept


# Beside a key: a number if a row is presupposed (the ordinal of the key's first change), else NULL.
FIRST = scratch("first")
# Of rows, or of keys.
Numbers: TypeAlias = "npt.NDArray[np.int64]"
Mask: TypeAlias = "npt.NDArray[np.bool_]"


def presupposed(key: Sequence[str], firsts: pa.Table, live: pa.Table) -> pa.Table:
    """Return the keys of `firsts`, each key's first change of those in `live`, with `__lp_first`."""
    firsts = firsts.select([*key, ORD, OP])
    old = pc.add(live.filter(pc.equal(live.column(OP), "before")).column(ORD), 1).combine_chunks()
    presupposes = pc.and_(pc.not_equal(firsts.column(OP), "insert"), pc.invert(pc.is_in(firsts.column(ORD), old)))
    nothing = pa.scalar(None, pa.int64())
    return firsts.select(list(key)).append_column(FIRST, pc.if_else(presupposes, firsts.column(ORD), nothing))


def codes(rows: pa.Table, key: Sequence[str]) -> tuple[Numbers, int]:
    """Return a number for each row, from zero on, the same for rows with the same key, and the count of keys.

    NULL is a value like any other.
    """
    numbers, count = np.zeros(rows.num_rows, np.int64), min(1, rows.num_rows)
    for name in key:
        column = rows.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        numbers = numbers * len(column.dictionary) + column.indices.to_numpy()
        count *= len(column.dictionary)
        if len(key) > 1:
            # Numbers of pairs of columns have gaps, and must not grow with each column.
            pairs = pa.array(numbers).dictionary_encode()
            numbers, count = pairs.indices.to_numpy().astype(np.int64), len(pairs.dictionary)
    return numbers, count


def ranks(numbers: Numbers) -> Numbers:
    """Return for each place how many before it have the same number."""
    order = np.argsort(numbers, kind="stable")
    in_order = numbers[order]
    ranks = np.empty(len(numbers), np.int64)
    ranks[order] = np.arange(len(numbers)) - np.searchsorted(in_order, in_order)
    return ranks


def under_keys(rows: pa.Table, keys: pa.Table) -> Mask:
    """Return which rows have one of `keys`, all of whose columns are a key's; NULL is a value like any other."""
    own = rows.select(keys.column_names).cast(keys.schema)
    numbers, _ = codes(pa.concat_tables([keys, own]), keys.column_names)
    mask: Mask = np.isin(numbers[keys.num_rows :], numbers[: keys.num_rows])
    return mask


class DriftedError(TableHeldError):
    """The lake does not have the rows that the changes presuppose."""


def check_keys(thing: str, removed: Removed[pa.Table], met: Numbers) -> None:
    """Raise DriftedError unless the rows that were met, named by their key's number, are those that are presupposed."""
    if removed.presupposed is not None:
        firsts = removed.rows.column(FIRST).take(pa.array(met))
        check_counts(thing, removed.presupposed, rows=len(met), keys=pc.count_distinct(firsts).as_py())


def check_counts(thing: str, presupposed: int, *, rows: int = 0, keys: int = 0) -> None:
    """Raise DriftedError unless the `rows` that were met are one of each key presupposed, of which `keys` were met."""
    detail: dict[str, str] = {}
    if presupposed > keys:
        detail |= {"absent": f"{presupposed - keys:,}", "presupposed": f"{presupposed:,}"}
    if rows > keys:
        detail["unexpected"] = f"{rows - keys:,}"
    if detail:
        raise DriftedError(thing, HeldCause.ROWS_DIFFER, WayOut.SNAPSHOT, detail)


def distinct_rows(rows: pa.Table) -> pa.Table:
    """Return each row once."""
    # By number: Arrow takes a name that begins with a dot for a path.
    numbers = [str(number) for number in range(rows.num_columns)]
    return (
        rows.rename_columns(numbers)
        .group_by(numbers, use_threads=False)
        .aggregate([])
        .rename_columns(rows.column_names)
    )
