"""The copy of one table: its parts, chunks and keys, and the rate of its rows.

The snapshot's point and its record do not belong here (`lakeproof.snapshot.run`).
"""
