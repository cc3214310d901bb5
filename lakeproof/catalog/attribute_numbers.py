"""Finds the attribute number of each column of a Relation message, from the catalog before and after the message.

Reading the catalog does not belong here (`lakeproof.postgres`), nor choosing the two readings
(`lakeproof.drain.catalog.readings`).

The stream names a table's columns as they were, the catalog has them as they are, and only the catalog has their numbers.
Whatever was altered in between, and how often, this holds:

    columns are in the order of their numbers
    each number is given once, to the column that is added last
    a column that exists before and after exists in between; a column that is gone stays gone
    a dropped column keeps its line, so the numbers ever given are known, and the order in which columns were dropped

If that leaves one number for a column, it is the right one. If it leaves several, the number is unknown, unless the
column is gone afterwards in any case. A name decides nothing: a column may have been renamed, and a free name may be
given again, so a message may have exactly the names of a reading and mean other columns. Only a column that still has
the name it was added with never had another name.

A column that was added after the first reading and dropped before the second is in neither: the value that older rows
have in it can't be known. It gets its number below zero, and the lake leaves it out. So such a column must not be one
that still exists and was renamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb
from typing import NamedTuple

# An unknown number.
UNKNOWN = 0
# smallint, integer and bigint; real and double precision; text and varchar.
_FAMILIES = (frozenset({21, 23, 20}), frozenset({700, 701}), frozenset({25, 1043}))


class NamedColumn(NamedTuple):
    """A column in a Relation message."""

    name: str
    type_oid: int


class NumberedColumn(NamedTuple):
    """A column in the catalog."""

    attnum: int
    name: str
    type_oid: int

    @property
    def unnumbered(self) -> NamedColumn:
        """The column as a Relation message would have it."""
        return NamedColumn(self.name, self.type_oid)


@dataclass(frozen=True, slots=True)
class Columns:
    """A table's sent columns, in the order of their numbers, and the highest number ever given (`last`).

    `unsent` are the numbers of existing columns that are not sent, `dropped` those of dropped columns in the order of their
    dropping, and `as_added` those that still have the name they were added with, as far as that is known.
    """

    columns: tuple[NumberedColumn, ...]
    last: int
    unsent: frozenset[int] = frozenset()
    dropped: tuple[int, ...] = ()
    as_added: frozenset[int] = frozenset()

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(column.attnum for column in self.columns)

    def lost_since(self, before: Columns) -> list[int]:
        """Return the numbers given after `before` to columns that are gone."""
        existing = self.unsent.union(self.numbers)
        return [number for number in range(before.last + 1, self.last + 1) if number not in existing]


def numbers_of(sent: Sequence[NamedColumn], before: Columns | None, after: Columns | None) -> tuple[int, ...]:
    """Return the number of each column; `UNKNOWN` if it can't be known, below zero if the column came and went.

    `before` is the catalog at some point before the message, `after` at some point after it. With only one of them, the
    columns go by name. Announcing a table again means nothing: the server does so after an ANALYZE too.
    """
    if before is None or after is None:
        return _by_name(sent, before, after)
    numbers = _only_way(len(sent), before, after) or _possible(sent, before, after)
    if numbers is None:
        return _by_name(sent, before, after)
    lost = after.lost_since(before)
    return tuple(-number if number in lost and number > 0 else number for number in numbers)


def _by_name(sent: Sequence[NamedColumn], before: Columns | None, after: Columns | None) -> tuple[int, ...]:
    """Return, column by column, the number that both readings (or the only one) give to this name and type."""
    readings = [reading for reading in (before, after) if reading is not None]
    by_reading = [{column.unnumbered: column.attnum for column in reading.columns} for reading in readings]
    numbers = []
    for column in sent:
        by_each = {numbered.get(column, UNKNOWN) for numbered in by_reading}
        numbers.append(by_each.pop() if len(by_each) == 1 else UNKNOWN)
    given_numbers = [number for number in numbers if number]
    return tuple(numbers) if given_numbers == sorted(set(given_numbers)) else (UNKNOWN,) * len(sent)


def _only_way(count: int, before: Columns, after: Columns) -> tuple[int, ...] | None:
    """Return the only set of `count` numbers that can have existed in between, whatever the columns' names."""
    ways: set[tuple[int, ...]] = set()
    kept, lost_since = frozenset(after.numbers), after.lost_since(before)
    gone = [number for number in before.numbers if number not in kept]
    stay = [number for number in before.numbers if number in kept]
    for last in range(before.last, after.last + 1):
        new = [number for number in kept if before.last < number <= last]
        lost = [number for number in lost_since if number <= last]
        free, optional = count - len(stay) - len(new), [*gone, *lost]
        if not 0 <= free <= len(optional):
            continue
        if comb(len(optional), free) > 1:
            return None
        ways.add(tuple(sorted([*stay, *new, *(optional if free else [])])))
    return ways.pop() if len(ways) == 1 else None


def _possible(sent: Sequence[NamedColumn], before: Columns, after: Columns) -> tuple[int, ...] | None:
    """Return, column by column, the only number that order and types allow; None if they allow no way at all.

    A column that is gone afterwards in every way is left out, whichever it was.
    """
    ways = [way for way in set(_ways(len(sent), before, after)) if _is_allowed(sent, way, before, after)]
    numbers = []
    for candidates in map(set, zip(*ways, strict=True)):
        if len(candidates) == 1:
            numbers.append(candidates.pop())
        else:
            numbers.append(UNKNOWN if candidates.intersection(after.numbers) else -max(candidates))
    return tuple(numbers) if ways else None


def _ways(count: int, before: Columns, after: Columns) -> Iterator[tuple[int, ...]]:
    """Yield sets of `count` numbers that existed after all numbers up to some had been given and some dropped."""
    lost = after.lost_since(before)
    goes = {*before.numbers, *lost} - set(after.numbers)
    gone = [number for number in after.dropped if number in goes]
    if len(gone) < len(goes):
        # A line is missing: the order is unknown.
        return
    ever = {*before.numbers, *lost, *after.numbers}
    for last in range(before.last, after.last + 1):
        for dropped in range(len(gone) + 1):
            if dropped and gone[dropped - 1] > last:
                break
            existing = sorted(number for number in ever.difference(gone[:dropped]) if number <= last)
            if len(existing) == count:
                yield tuple(existing)


def _is_allowed(sent: Sequence[NamedColumn], way: Sequence[int], before: Columns, after: Columns) -> bool:
    """True if the columns may have had these numbers, some of them under other names for a while."""
    for column, number in zip(sent, way, strict=True):
        entries = _entries_of(number, before, after)
        if entries and not any(_alike(column.type_oid, entry.type_oid) for entry in entries):
            return False
        if number in after.as_added and number not in before.numbers and column.name != entries[0].name:
            return False
    return True


def _entries_of(number: int, before: Columns, after: Columns) -> list[NumberedColumn]:
    """Return the entries of the two readings for a number."""
    return [column for reading in (before, after) for column in reading.columns if column.attnum == number]


def _alike(type_oid: int, other: int) -> bool:
    """True if one type can become the other without a trace that makes the table's data uncertain."""
    return type_oid == other or any({type_oid, other} <= family for family in _FAMILIES)
