"""Removes data files that no manifest names: what a killed or replaced writer left behind.

The rule, safe beside any number of living writers: **a file may be removed only if its number is in the chain already and
that number's manifest does not name it.** A number is given once, so such a file can never become visible.
A file with the next number or a later one may be about to be named by a writer that is still alive: it stays until the chain
has passed it. There is no clock in this. A drain that finds such a file makes the chain pass the number, by the manifest of
its first reading of the catalog: one that is killed again and again would fill the disk with files of one number.

Manifests are read for few numbers. A writer begins a segment only when all its segments but the one before are in the chain
(`drain/segment_ends.py`), with all its files: only the last two numbers of a writer can have left-overs. And they are near
the end that the chain had when their writer died, so the newest of these numbers are enough.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from lakeproof.landing.chain import Chain

# The numbers whose manifests are read. Each start of a drain looks, and what it must leave, since the chain has not passed
# it, the next one removes.
NUMBERS_MAX = 8
# The age at which a put's temporary file counts as interrupted; a put takes milliseconds.
TEMPORARY_AGE_S = 3_600.0
_NAME = re.compile(r"(?P<number>[0-9]{20})-(?P<writer>[0-9a-f]{32})-[0-9]{4,}\.parquet")


class Swept(NamedTuple):
    """The keys that were removed; and whether there are files of the chain's next number, which had to stay."""

    removed: list[str]
    ahead: bool


def sweep(chain: Chain) -> Swept:
    """Remove left-overs of the newest `NUMBERS_MAX` numbers that may have some.

    Costs one listing of the data folder, and one manifest for each of these numbers that the chain has not read yet. Below
    the chain's start there is no manifest that could name a file: nothing is left there.
    """
    files: dict[int, list[tuple[str, str]]] = {}
    newest: dict[str, int] = {}
    for key in chain.lake.store.list(chain.lake.paths.data(chain.incarnation)):
        match = _NAME.fullmatch(key.rpartition("/")[2])
        if match is not None:
            number, writer = int(match["number"]), match["writer"]
            files.setdefault(number, []).append((writer, key))
            newest[writer] = max(number, newest.get(writer, 0))
    gone = [n for n in files if n < chain.first_number]
    doubtful = [n for n in files if n >= chain.first_number and any(newest[writer] <= n + 1 for writer, _ in files[n])]
    in_chain = sorted(n for n in doubtful if n < chain.next_number)[-NUMBERS_MAX:]
    landing = chain.lake.paths.landing(chain.incarnation)
    removed = [key for number in gone for _, key in files[number]]
    for number in in_chain:
        named = {f"{landing}/{file.path}" for file in chain.manifest(number).named}
        removed += [key for _, key in files[number] if key not in named]
    for key in sorted(removed):
        chain.lake.store.delete(key)
    chain.lake.store.sweep(chain.lake.paths.manifests(chain.incarnation), TEMPORARY_AGE_S)
    return Swept(sorted(removed), chain.next_number in files)
