"""Compaction that goes on and on, with what runs beside its cycles: refreshes of views and proofs of what changed.

Cycles do not belong here (`lakeproof.compaction`), nor keeping the process alive, which its caller does.

    follower.py   the turns and their cycles     views.py   views, refreshed in threads of their own
    proofs.py     what changed, proven again and again   worker.py   a thread of either
"""

__all__ = ["follower", "proofs"]
