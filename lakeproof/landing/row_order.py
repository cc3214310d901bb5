"""The ordinals that the landing gives its rows: `_lp_ord` of a row of history is known when the row is written.

Nothing uses this yet but chunks' rows (decision 0032). A cycle's own rows belong to `lakeproof.lake.planning.landing_order`.

    snapshot rows   below every change: by chunk and row
    changes         `first_ordinal` of the segment and the row's number in it, with room for cycles' own rows behind each
"""

from __future__ import annotations

from lakeproof.errors import InvariantError

# So many rows of their own may cycles put behind one segment; 2**29 segments fit then, one a second for 17 years.
ROOM = 1 << 33
CHUNK_BITS = 36
_SNAPSHOT_FIRST = -(1 << 62)
_LAST = 1 << 62


def chunk_ordinal(number: int) -> int:
    """Return the ordinal of the first row of a snapshot's chunk."""
    return _SNAPSHOT_FIRST + (number << CHUNK_BITS)


def ordinal_behind(first_ordinal: int, rows: int) -> int:
    """Return the `first_ordinal` of the manifest behind one with rows, or behind a chain's head."""
    following = first_ordinal + rows + ROOM
    if following >= _LAST:
        raise InvariantError(
            "the landing", "it has more segments than ordinals", "bootstrap the source into a new lake"
        )
    return following
