"""Differences that the changes which a publication does not send can explain: values in, values out.

A row that differs is excused only by an action that is not sent and can have caused exactly that:

    delete     a row too many in the lake
    truncate   the same, if the table's file has changed since its snapshot: then there may have been a TRUNCATE
    insert     a row missing from the lake
    update     another row under the same key; and, since an update may change the key (or any row of a table without
               a key), a row too many together with a missing row, equally many of both

An unsent insert under the key of a row whose deletion was not sent either also leaves another row under the same key. All
other differences count. If an unsent update moved a row to another key and the old key was used again, there is one missing
row more than there are rows too many: it counts as a difference, although nothing is damaged, and a repair inserts it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from lakeproof.postgres.catalog.tables import ACTIONS
from lakeproof.proof.compare import KEYS_MAX, DifferingKey, ProofRow, differing_keys, rows_by_key


@dataclass(slots=True)
class Counted:
    """Rows that differ in one way: their number, and the first of their keys."""

    rows: int = 0
    keys: list[DifferingKey] = field(default_factory=list)

    def add(self, rows: int, key: DifferingKey) -> None:
        """Add `rows` with this key."""
        self.rows += rows
        if rows and len(self.keys) < KEYS_MAX:
            self.keys.append(key)


@dataclass(slots=True)
class Differences:
    """Rows by the way they differ: other values under the same key, surplus in the lake, missing from the lake."""

    other: Counted = field(default_factory=Counted)
    surplus: Counted = field(default_factory=Counted)
    lacking: Counted = field(default_factory=Counted)

    def add(self, names: tuple[str, ...], source: Iterable[ProofRow], lake: Iterable[ProofRow]) -> None:
        """Add the rows of one bucket, which contains all rows of its keys."""
        sides = rows_by_key(source), rows_by_key(lake)
        for key in sides[0].keys() | sides[1].keys():
            ours, theirs = sides[1].get(key, Counter()), sides[0].get(key, Counter())
            surplus, lacking = (ours - theirs).total(), (theirs - ours).total()
            if not surplus and not lacking:
                continue
            (named,) = differing_keys(names, theirs.elements(), ours.elements())
            other = min(surplus, lacking)
            self.other.add(other, named)
            self.surplus.add(surplus - other, named)
            self.lacking.add(lacking - other, named)


@dataclass(frozen=True, slots=True)
class Judgement:
    """`excused`: unsent changes explain all differences; `keys` are of the others; `message` has both for people."""

    excused: bool
    message: str
    keys: tuple[DifferingKey, ...]


def _by_bucket(rows: Iterable[tuple[int, ProofRow]]) -> Iterator[tuple[int, list[ProofRow]]]:
    """Give rows in the order of their buckets, a bucket at a time."""
    for bucket, group in groupby(rows, key=lambda row: row[0]):
        yield bucket, [row for _, row in group]


def differences(
    names: tuple[str, ...],
    source: Iterable[tuple[int, ProofRow]],
    lake: Iterable[tuple[int, ProofRow]],
) -> Differences:
    """Return how the rows of both sides differ; each side is in the order of its buckets, one of which is in memory."""
    result = Differences()
    for rows in both_by_bucket(source, lake):
        result.add(names, *rows)
    return result


def both_by_bucket(
    source: Iterable[tuple[int, ProofRow]], lake: Iterable[tuple[int, ProofRow]]
) -> Iterator[tuple[list[ProofRow], list[ProofRow]]]:
    """Give the rows that the sides have in each bucket; each side is in the order of its buckets."""
    sides = _by_bucket(source), _by_bucket(lake)
    heads = [next(side, None) for side in sides]
    while any(head is not None for head in heads):
        bucket = min(head[0] for head in heads if head is not None)
        in_source, in_lake = (head[1] if head is not None and head[0] == bucket else [] for head in heads)
        yield in_source, in_lake
        heads = [
            next(side, None) if head is not None and head[0] == bucket else head
            for side, head in zip(sides, heads, strict=True)
        ]


def judge(differing: Differences, sent: Iterable[str], *, new_file: bool) -> Judgement:
    """Subtract what the actions that are not `sent` explain; `new_file`: the table's file has changed."""
    unsent = set(ACTIONS) - set(sent)
    ends = "delete" in unsent or ("truncate" in unsent and new_file)
    counts = {"other": differing.other.rows, "surplus": differing.surplus.rows, "lacking": differing.lacking.rows}
    left = dict(counts)
    if "update" in unsent or ("insert" in unsent and ends):
        left["other"] = 0
    if "update" in unsent:
        # First: the rest may be explained by an action that explains one side alone.
        pairs = min(left["surplus"], left["lacking"])
        left["surplus"] -= pairs
        left["lacking"] -= pairs
    if ends:
        left["surplus"] = 0
    if "insert" in unsent:
        left["lacking"] = 0
    keys: dict[tuple[tuple[str, str | None], ...], DifferingKey] = {}
    for what, counted in (("other", differing.other), ("surplus", differing.surplus), ("lacking", differing.lacking)):
        if left[what]:
            keys |= {tuple(named.key.items()): named for named in counted.keys}
    actions = ", ".join(a for a in ACTIONS if a in unsent)
    excused = {what: counts[what] - left[what] for what in counts}
    message = f"its publication does not send {actions}, which accounts for {_rows(excused)}"
    if any(left.values()):
        message += f", and not for {_rows(left)}"
    return Judgement(not any(left.values()), message, tuple(keys.values())[:KEYS_MAX])


def _rows(counts: Mapping[str, int]) -> str:
    words = {"other": "with other values", "surplus": "too many in the lake", "lacking": "that the lake lacks"}
    parts = [f"{n} {'row' if n == 1 else 'rows'} {words[what]}" for what, n in counts.items() if n]
    return " and ".join(parts) or "no row"
