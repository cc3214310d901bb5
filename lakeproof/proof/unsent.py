"""What the changes that a publication does not send can have made of a table: values in, values out.

Which rows differ belongs to `lakeproof.proof.compare`, reading them to `lakeproof.commands.prove`.

A row that differs is excused only by an action that is not sent and can have made just that:

    delete     a row too many in the lake
    truncate   the same, if the table's file is another than at its snapshot: then there may have been a TRUNCATE
    insert     a row that the lake lacks
    update     another row under the same key; and, since an update may change the key (or any row of a table without
               one), a row too many together with one that lacks, as many of the one as of the other

An insert that is not sent under the key of a row whose end was not sent either leaves another row under the same key, too.
Whatever is left over differs. Where a row moved to another key by an update that was not sent and its old key was used
again, that is one lacking row more than there are too many: it differs, although nobody damaged it, and a repair brings it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from lakeproof.proof.compare import KEYS_MAX, DifferingKey, ProofRow, differing_keys, rows_by_key

ALL_ACTIONS = ("insert", "update", "delete", "truncate")


@dataclass(slots=True)
class Counted:
    """Rows that differ in one way: how many, and the first of their keys."""

    rows: int = 0
    keys: list[DifferingKey] = field(default_factory=list)

    def add(self, rows: int, key: DifferingKey) -> None:
        """`rows` more, of this key."""
        self.rows += rows
        if rows and len(self.keys) < KEYS_MAX:
            self.keys.append(key)


@dataclass(slots=True)
class Differences:
    """Rows by how they differ: other ones under the same key, too many in the lake, lacking in the lake."""

    other: Counted = field(default_factory=Counted)
    surplus: Counted = field(default_factory=Counted)
    lacking: Counted = field(default_factory=Counted)

    def add(self, names: tuple[str, ...], source: Iterable[ProofRow], lake: Iterable[ProofRow]) -> None:
        """The rows of one bucket, in which all rows of a key are."""
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
    """Whether all is excused; what is left over, and its keys; `told` has both for people."""

    excused: bool
    told: str
    keys: tuple[DifferingKey, ...]


def by_bucket(rows: Iterable[tuple[int, ProofRow]]) -> Iterator[tuple[int, list[ProofRow]]]:
    """Rows in the order of their buckets, a bucket at a time."""
    for bucket, group in groupby(rows, key=lambda row: row[0]):
        yield bucket, [row for _, row in group]


def differences(
    names: tuple[str, ...],
    source: Iterable[tuple[int, ProofRow]],
    lake: Iterable[tuple[int, ProofRow]],
) -> Differences:
    """How the rows of both sides differ, each in the order of their buckets; a bucket of each is in memory at a time."""
    found = Differences()
    sides = by_bucket(source), by_bucket(lake)
    heads = [next(side, None) for side in sides]
    while any(head is not None for head in heads):
        bucket = min(head[0] for head in heads if head is not None)
        rows = [head[1] if head is not None and head[0] == bucket else [] for head in heads]
        found.add(names, *rows)
        heads = [
            next(side, None) if head is not None and head[0] == bucket else head
            for side, head in zip(sides, heads, strict=True)
        ]
    return found


def judge(found: Differences, sent: Iterable[str], *, new_file: bool) -> Judgement:
    """What of `found` the actions that are not `sent` account for; `new_file`: the table's file is another one now."""
    unsent = set(ALL_ACTIONS) - set(sent)
    ends = "delete" in unsent or ("truncate" in unsent and new_file)
    counts = {"other": found.other.rows, "surplus": found.surplus.rows, "lacking": found.lacking.rows}
    left = dict(counts)
    if "update" in unsent or ("insert" in unsent and ends):
        left["other"] = 0
    if ends:
        left["surplus"] = 0
    if "insert" in unsent:
        left["lacking"] = 0
    if "update" in unsent:
        pairs = min(left["surplus"], left["lacking"])
        left["surplus"] -= pairs
        left["lacking"] -= pairs
    keys: dict[tuple[tuple[str, str | None], ...], DifferingKey] = {}
    for what, counted in (("other", found.other), ("surplus", found.surplus), ("lacking", found.lacking)):
        if left[what]:
            keys |= {tuple(named.key.items()): named for named in counted.keys}
    actions = ", ".join(a for a in ALL_ACTIONS if a in unsent)
    excused = {what: counts[what] - left[what] for what in counts}
    told = f"its publication does not send {actions}, which accounts for {_rows(excused)}"
    if any(left.values()):
        told += f", and not for {_rows(left)}"
    return Judgement(not any(left.values()), told, tuple(keys.values())[:KEYS_MAX])


def _rows(counts: Mapping[str, int]) -> str:
    words = {"other": "with other values", "surplus": "too many in the lake", "lacking": "that the lake lacks"}
    told = [f"{n} {'row' if n == 1 else 'rows'} {words[what]}" for what, n in counts.items() if n]
    return " and ".join(told) or "no row"
