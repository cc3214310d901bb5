"""The tags of columns in the hash of a row, and their order: what a writer's sum and Spark's have in common.

Neither is computed here: `row_sums.py` does it from Arrow, with compiled loops, `lakeproof.lake.rows.history_sum` in Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

from lakeproof.hidden_columns import (
    COMMIT_NUMBER,
    COMMIT_TIME,
    FROM,
    HIDDEN_PREFIX,
    KEY,
    LSN,
    OP,
    ORD,
    PUT_AWAY,
    SEQ,
    TEXT,
    XID,
)

# A column's tag: a number, a text, or none.
Tag: TypeAlias = int | str | None
# The hidden columns of history. The first two come before all others, untagged: they are never NULL, and whoever copies a
# snapshot has one value of each. The others have tags beside the attribute numbers, which end at 1,600.
_FIRST = (OP, LSN)
_TAGGED = (ORD, SEQ, XID, COMMIT_TIME, TEXT, KEY, FROM, COMMIT_NUMBER)
_HIDDEN_TAGS = {name: 10_000 + i for i, name in enumerate(_TAGGED)}
_AWAY = re.compile(re.escape(PUT_AWAY) + r"[0-9]+_([0-9]+)(_[0-9]+)?")


def attribute_number(name: str, numbers: Mapping[str, int]) -> int:
    """Return a column's attribute number, the same under all schemas; 0 if it is hidden or the catalog did not know it."""
    away = _AWAY.fullmatch(name)
    if away is not None:
        return int(away[1])
    return 0 if name.startswith(HIDDEN_PREFIX) else numbers.get(name, 0)


def tagged(numbers: Mapping[str, int]) -> list[tuple[Tag, str]]:
    """Return columns with their tags, in the order in which a row's hash takes them.

    `numbers` has each column's attribute number, 0 if it has none. A tag is that number, a hidden column's own one, the name
    of a column that the catalog does not know, or None for no tag.
    """
    first: list[tuple[Tag, str]] = [(None, name) for name in _FIRST if name in numbers]
    others = [(_tag(name, number), name) for name, number in numbers.items() if name not in _FIRST]
    return [*first, *sorted(others, key=lambda each: (isinstance(each[0], str), each))]


def _tag(name: str, number: int) -> int | str:
    if number:
        # A number below zero would be no tag to the loops.
        return number if number > 0 else str(number)
    return _HIDDEN_TAGS.get(name, name)
