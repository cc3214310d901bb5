"""The keys whose rows differ between the sides, all of them, for a repair: values in, values out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakeproof.proof.compare import ProofRow, rows_by_key
from lakeproof.proof.source.unsent import both_by_bucket
from lakeproof.schema import Column

# A repair reads the rows of so many keys of a table by their keys; beyond it, the whole table. The lease is kept meanwhile.
KEYS_MAX = 10_000
# To find the keys, so many rows of the differing buckets are read from each side; of more, a copy is not much dearer.
ROWS_MAX = 2_000_000


@dataclass(frozen=True, slots=True)
class KeysToRepair:
    """The differing keys of a table, each the exact texts of its `columns`; or why it is to be copied whole."""

    keys: Sequence[tuple[str, ...]] = ()
    why_whole: str | None = None
    columns: Sequence[Column] = ()


def keys_to_repair(
    source: Iterable[tuple[int, ProofRow]], lake: Iterable[tuple[int, ProofRow]], keys_max: int = KEYS_MAX
) -> KeysToRepair:
    """Return the keys whose rows are not the same multiset on both sides, in order of their texts.

    Each side is in the order of its buckets, one of which is in memory.
    """
    differing: set[tuple[str, ...]] = set()
    for of_source, of_lake in both_by_bucket(source, lake):
        sides = rows_by_key(of_source), rows_by_key(of_lake)
        for key in sides[0].keys() | sides[1].keys():
            if sides[0].get(key, Counter()) == sides[1].get(key, Counter()):
                continue
            texts = tuple(text for text in key if text is not None)
            if len(texts) < len(key):
                return KeysToRepair(why_whole="a key that differs has NULL in it")
            differing.add(texts)
        if len(differing) > keys_max:
            return KeysToRepair(why_whole=f"more than {keys_max:,} keys differ")
    return KeysToRepair(sorted(differing))
