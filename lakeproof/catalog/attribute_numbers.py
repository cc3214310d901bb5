"""Which attribute number each column of a Relation message has, from what the catalog said before it and says after it.

Reading the catalog belongs to `lakeproof.postgres`, choosing the two readings to `lakeproof.drain.catalog_readings`.

The stream names a table's columns as they were, the catalog has them as they are, and only the catalog has their numbers.
What holds in between, whatever was altered how often:

    columns stand in the order of their numbers
    a number is given once, to the column that is added last
    a column that is there before and after is there in between; one that is gone stays gone
    a dropped column keeps its line, so it is known which numbers were given, and in which order they were taken away

If that leaves one number for a column, it is the right one. If it leaves several, nothing is known, unless the column is
gone afterwards in any case. A name decides nothing: a column may have been renamed, and a name that is free be given again,
so that a message may name the columns of a reading exactly and mean others. Only a column that still has the name it was
added with was never called otherwise.

A column that was added after the one reading and dropped before the other is nobody's: what older rows read in it can't be
known. It gets its number below zero, and the lake leaves it out. So it must not be one that is still there and was renamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb
from typing import NamedTuple

# A number that is not known.
UNKNOWN = 0
# smallint, integer and bigint; real and double precision; text and varchar.
_FAMILIES = (frozenset({21, 23, 20}), frozenset({700, 701}), frozenset({25, 1043}))


class NamedColumn(NamedTuple):
    """A column as a Relation message has it."""

    name: str
    type_oid: int


class NumberedColumn(NamedTuple):
    """A column as the catalog has it."""

    attnum: int
    name: str
    type_oid: int

    @property
    def unnumbered(self) -> NamedColumn:
        """As a Relation message would have it."""
        return NamedColumn(self.name, self.type_oid)


@dataclass(frozen=True, slots=True)
class Columns:
    """A table's columns that are sent, in the order of their numbers, and the highest number `last` that was ever given.

    `unsent` are the numbers of columns that are there and not sent, `dropped` those of columns that are gone, in the order
    of their going, and `as_added` those that still have the name they were added with, as far as that is known.
    """

    columns: tuple[NumberedColumn, ...]
    last: int
    unsent: frozenset[int] = frozenset()
    dropped: tuple[int, ...] = ()
    as_added: frozenset[int] = frozenset()

    @property
    def numbers(self) -> tuple[int, ...]:
        """The columns' numbers, in order."""
        return tuple(column.attnum for column in self.columns)

    def lost_since(self, before: Columns) -> list[int]:
        """The numbers that were given after `before`, to columns that are gone."""
        there = self.unsent.union(self.numbers)
        return [number for number in range(before.last + 1, self.last + 1) if number not in there]

    def is_named(self, sent: Sequence[NamedColumn]) -> bool:
        """Whether a message names exactly these columns."""
        return [column.unnumbered for column in self.columns] == list(sent)


def numbers_of(sent: Sequence[NamedColumn], before: Columns | None, after: Columns | None) -> tuple[int, ...]:
    """The number of each column; `UNKNOWN` if it can't be told, below zero if the column came and went.

    `before` is what the catalog said at some point before the message, `after` at some point after it. With only one of
    them the columns go by name. That a table is announced again says nothing: the server does so after an ANALYZE too.
    """
    if before is None or after is None:
        return _by_name(sent, before, after)
    numbers = _only_way(len(sent), before, after) or _possible(sent, before, after)
    if numbers is None:
        return _by_name(sent, before, after)
    lost = after.lost_since(before)
    return tuple(-number if number in lost and number > 0 else number for number in numbers)


def _by_name(sent: Sequence[NamedColumn], before: Columns | None, after: Columns | None) -> tuple[int, ...]:
    """Column by column: the number that both readings (or the only one) give a column of this name and type."""
    readings = [known for known in (before, after) if known is not None]
    given = [{column.unnumbered: column.attnum for column in known.columns} for known in readings]
    numbers = []
    for column in sent:
        by_each = {numbered.get(column, UNKNOWN) for numbered in given}
        numbers.append(by_each.pop() if len(by_each) == 1 else UNKNOWN)
    given_numbers = [number for number in numbers if number]
    return tuple(numbers) if given_numbers == sorted(set(given_numbers)) else (UNKNOWN,) * len(sent)


def _only_way(count: int, before: Columns, after: Columns) -> tuple[int, ...] | None:
    """The only set of `count` numbers that can have been there in between, whatever the columns were called."""
    ways: set[tuple[int, ...]] = set()
    gone = [number for number in before.numbers if number not in after.numbers]
    stay = [number for number in before.numbers if number in after.numbers]
    for last in range(before.last, after.last + 1):
        new = [number for number in after.numbers if before.last < number <= last]
        lost = [number for number in after.lost_since(before) if number <= last]
        free, optional = count - len(stay) - len(new), [*gone, *lost]
        if not 0 <= free <= len(optional):
            continue
        if comb(len(optional), free) > 1:
            return None
        ways.add(tuple(sorted([*stay, *new, *(optional if free else [])])))
    return ways.pop() if len(ways) == 1 else None


def _possible(sent: Sequence[NamedColumn], before: Columns, after: Columns) -> tuple[int, ...] | None:
    """Column by column, the only number of the ways that order and types allow; None if they allow none.

    A column that is gone afterwards in every way is left out, whichever it was.
    """
    ways = [way for way in set(_ways(len(sent), before, after)) if _is_allowed(sent, way, before, after)]
    numbers = []
    for given in map(set, zip(*ways, strict=True)):
        if len(given) == 1:
            numbers.append(given.pop())
        else:
            numbers.append(UNKNOWN if given.intersection(after.numbers) else -max(given))
    return tuple(numbers) if ways else None


def _ways(count: int, before: Columns, after: Columns) -> Iterator[tuple[int, ...]]:
    """Sets of `count` numbers: what there was once the numbers up to some had been given, and some had been dropped."""
    lost = after.lost_since(before)
    goes = {*before.numbers, *lost} - set(after.numbers)
    gone = [number for number in after.dropped if number in goes]
    if len(gone) < len(goes):
        # Not every line is there: the order is not known.
        return
    ever = {*before.numbers, *lost, *after.numbers}
    for last in range(before.last, after.last + 1):
        for dropped in range(len(gone) + 1):
            if dropped and gone[dropped - 1] > last:
                break
            there = sorted(number for number in ever.difference(gone[:dropped]) if number <= last)
            if len(there) == count:
                yield tuple(there)


def _is_allowed(sent: Sequence[NamedColumn], way: Sequence[int], before: Columns, after: Columns) -> bool:
    """Whether the columns may have had these numbers, if some were called otherwise for a while."""
    for column, number in zip(sent, way, strict=True):
        known = _known(number, before, after)
        if known and not any(_alike(column.type_oid, one.type_oid) for one in known):
            return False
        if number in after.as_added and number not in before.numbers and column.name != known[0].name:
            return False
    return True


def _known(number: int, before: Columns, after: Columns) -> list[NumberedColumn]:
    """What the two readings say of a number."""
    return [column for reading in (before, after) for column in reading.columns if column.attnum == number]


def _alike(type_oid: int, other: int) -> bool:
    """Whether the one type can become the other without a trace that puts the table in doubt."""
    return type_oid == other or any({type_oid, other} <= family for family in _FAMILIES)
