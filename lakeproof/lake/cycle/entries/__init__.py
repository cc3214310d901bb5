"""Copies that enter the lake in a cycle: linked as they are, by their keys, or corrected to the copy.

Taking a copy does not belong here (`lakeproof.snapshot`).

    linked.py    a table's first rows: the snapshot's files linked into both tables
    snapshot.py  the correction that a snapshot's entry needs
    keyed.py     the rows of single keys, which a repair has read
"""
