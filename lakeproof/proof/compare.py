"""Comparing the buckets of the two sides, and reducing differing buckets to keys: values in, values out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from lakeproof.hidden_columns import KEY

# A bag's rows, and a key's columns, in a report: at most so many, and of so many characters each.
KEYS_MAX = 100
KEY_TEXT_MAX = 200
# A bucket is of about so many rows: narrowing reads whole buckets, and each costs something on both sides.
ROWS_PER_BUCKET = 1_000
# The most rows read from each side to find keys: whole buckets, at least one.
NARROW_ROWS_MAX = 200_000


@dataclass(frozen=True, slots=True)
class Bucket:
    """The number of a bucket's rows, and the sum of their 60-bit hashes."""

    rows: int
    total: int


Buckets: TypeAlias = Mapping[int, Bucket]
_NONE = Bucket(0, 0)


@dataclass(frozen=True, slots=True)
class FilledBuckets:
    """The buckets of a table that have rows, of `number` buckets."""

    buckets: Buckets
    number: int


@dataclass(frozen=True, slots=True)
class ProofRow:
    """One row of a differing bucket: its hash, and the exact texts of its key's columns (none for a bag)."""

    hash: int
    key: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class DifferingKey:
    """A key whose rows differ between the sides.

    `key` is its columns' text by name; for a bag, which has none, the first 60 bits of the row's digest under
    `_lp_key`. `source_rows` and `lake_rows` count the rows under it.
    """

    key: Mapping[str, str | None]
    source_rows: int
    lake_rows: int


def number_of_buckets(rows: int | None, most: int) -> int:
    """Return the number of buckets for a table of about so many rows (None: nobody knows), `most` at most."""
    return most if rows is None else max(1, min(most, -(-rows // ROWS_PER_BUCKET)))


def rows_in(buckets: Buckets) -> int:
    """All rows of a side."""
    return sum(b.rows for b in buckets.values())


def differing_buckets(source: Buckets, lake: Buckets) -> list[int]:
    """The buckets in which the sides differ, in order."""
    return sorted(b for b in source.keys() | lake.keys() if source.get(b, _NONE) != lake.get(b, _NONE))


def to_narrow(source: Buckets, lake: Buckets) -> list[int]:
    """As many of the differing buckets as hold at most `NARROW_ROWS_MAX` rows on each side, at least one."""
    chosen: list[int] = []
    rows = 0
    for bucket in differing_buckets(source, lake):
        rows += max(source.get(bucket, _NONE).rows, lake.get(bucket, _NONE).rows)
        if chosen and rows > NARROW_ROWS_MAX:
            break
        chosen.append(bucket)
    return chosen


def differing_keys(
    key_names: tuple[str, ...], source: Iterable[ProofRow], lake: Iterable[ProofRow]
) -> list[DifferingKey]:
    """The keys whose rows are not the same multiset on both sides, in the order of their text, at most `KEYS_MAX`."""
    names = key_names or (KEY,)
    sides = Counter(source), Counter(lake)
    wrong = {_key(row) for row in (sides[0] - sides[1]) + (sides[1] - sides[0])}
    counts = Counter[tuple[str | None, ...]](), Counter[tuple[str | None, ...]]()
    for side, count in zip(sides, counts, strict=True):
        for row, n in side.items():
            count[_key(row)] += n
    chosen = sorted(wrong, key=lambda key: [(v is not None, v or "") for v in key])[:KEYS_MAX]
    return [
        DifferingKey(
            key={n: _shortened(v) for n, v in zip(names, key, strict=True)},
            source_rows=counts[0][key],
            lake_rows=counts[1][key],
        )
        for key in chosen
    ]


def rows_by_key(rows: Iterable[ProofRow]) -> dict[tuple[str | None, ...], Counter[ProofRow]]:
    """The rows under each key; a bag's rows under their own hash."""
    by_key: dict[tuple[str | None, ...], Counter[ProofRow]] = {}
    for row in rows:
        by_key.setdefault(_key(row), Counter())[row] += 1
    return by_key


def _key(row: ProofRow) -> tuple[str | None, ...]:
    return row.key or (f"{row.hash:015x}",)


def _shortened(text: str | None) -> str | None:
    return text if text is None or len(text) <= KEY_TEXT_MAX else text[:KEY_TEXT_MAX] + "…"
