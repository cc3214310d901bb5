"""The ordinals that the landing gives its rows: `_lp_ord` of a row of history is known when the row is written.

A cycle's own rows get theirs in `lakeproof.lake.planning.landing.order`.

    snapshot rows   below every change: by chunk and row
    changes         `first_ordinal` of the segment and the row's number in it, with room for cycles' own rows behind each
"""

from __future__ import annotations

from lakeproof.errors import InvariantError

# So many rows of their own may cycles put behind one segment before files can't be linked; 2**29 segments fit then, one a
# second for 17 years.
ROOM = 1 << 33
# A later incarnation begins so far above everything that has been named: the lake may still have rows of its own to come.
_BETWEEN_INCARNATIONS = 1 << 40
CHUNK_BITS = 36
_SNAPSHOT_FIRST = -(1 << 62)
_LAST = 1 << 62


def chunk_ordinal(number: int) -> int:
    """Return the ordinal of the first row of a snapshot's chunk."""
    return _SNAPSHOT_FIRST + (number << CHUNK_BITS)


def ordinal_behind(first_ordinal: int, rows: int) -> int:
    """Return the `first_ordinal` of the manifest behind one with rows, or behind a chain's head."""
    return _checked(first_ordinal + rows + ROOM)


def later_head(named: int) -> int:
    """Return the `first_ordinal` of the head of a later incarnation, if no ordinal above `named` has been named."""
    return _checked(named + _BETWEEN_INCARNATIONS)


def _checked(ordinal: int) -> int:
    if ordinal >= _LAST:
        raise InvariantError(
            "the landing", "it has more segments than ordinals", "bootstrap the source into a new lake"
        )
    return ordinal
