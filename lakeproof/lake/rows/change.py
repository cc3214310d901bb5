"""The net change of a table: the rows that go and the rows that come, no matter who computed them.

`lakeproof.lake.fold` computes it from changes, in Spark's frames or Arrow's tables, and `lakeproof.lake.delta` commits it;
neither knows the other, and nothing is computed or committed here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

# Spark's DataFrame, or Arrow's Table.
Frame = TypeVar("Frame")


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
