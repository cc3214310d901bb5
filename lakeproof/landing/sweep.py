"""Removes data files that no manifest names: what a killed or replaced writer left behind.

Removing named files that are no longer needed is retention, and does not belong here.

The rule, safe beside any number of living writers: **a file may be removed only if its number is in the chain already and
that number's manifest does not name it.** A number is given once, so such a file can never become visible.
A file with the next number or a later one may be about to be named by a writer that is still alive: it stays until the chain
has passed it. There is no clock in this.
"""

from __future__ import annotations

import re

from lakeproof.landing.chain import Chain

# A left-over is near the end that the chain had when its writer died. A drain's start looks this far back; `sweep` with
# depth None looks at everything.
DEPTH = 1_000
# The age at which a put's temporary file counts as interrupted; a put takes milliseconds.
TEMPORARY_AGE_S = 3_600.0
_NAME = re.compile(r"(?P<number>[0-9]{20})-(?P<writer>[0-9a-f]{32})-[0-9]{4,}\.parquet")


def sweep(chain: Chain, depth: int | None = DEPTH) -> list[str]:
    """Remove left-overs among the last `depth` numbers; returns the removed keys.

    Costs one listing of the data folder, and one manifest for each number that has files.
    """
    folder = chain.lake.paths.data(chain.incarnation)
    lowest = 0 if depth is None else max(0, chain.next_number - depth)
    by_number: dict[int, list[str]] = {}
    for key in chain.lake.store.list(folder):
        match = _NAME.fullmatch(key.rpartition("/")[2])
        if match is not None and lowest <= int(match["number"]) < chain.next_number:
            by_number.setdefault(int(match["number"]), []).append(key)
    removed: list[str] = []
    landing = chain.lake.paths.landing(chain.incarnation)
    for number, keys in sorted(by_number.items()):
        # Below the chain's start there is no manifest that could name a file.
        files = chain.manifest(number).named if number >= chain.first_number else ()
        named = {f"{landing}/{file.path}" for file in files}
        removed += [key for key in keys if key not in named]
    for key in removed:
        chain.lake.store.delete(key)
    chain.lake.store.sweep(chain.lake.paths.manifests(chain.incarnation), TEMPORARY_AGE_S)
    return removed
