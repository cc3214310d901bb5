"""Copies that enter the lake in a cycle: linked as they are, or by their keys.

Taking a copy does not belong here (`lakeproof.snapshot`).

    linked.py  a table's first rows: the snapshot's files linked into both tables
    keyed.py   the rows of single keys, which a repair has read
"""
