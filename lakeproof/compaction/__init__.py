"""Compaction of a source or a group: cycles, one after the other, until the lake has what landed; and what is then too much.

One cycle does not belong here (`lakeproof.lake.cycle`), nor going on and on (`lakeproof.follow`).

    source.py    one source up to its landing        group.py       all sources of a group up to one position
    pending.py   whether there is anything to do     retention.py   what nothing needs any more
    sizes.py     the room that a lake takes
"""

__all__ = ["group", "pending", "retention", "sizes", "source"]
