"""The copy of one table: its parts, chunks and keys, and the rate of its rows.

The snapshot's point and its record do not belong here (`lakeproof.snapshot.run`).

    copying.py     threads that copy chunks
    rate_limit.py  their common speed
    chunk_rows.py  a chunk's rows in the tables' form
    parts.py       writes the documents
    keyed_copy.py  a copy of single keys, for a repair
    keyed_rows.py  its rows and keys as files
"""
