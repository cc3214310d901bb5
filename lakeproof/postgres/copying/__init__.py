"""COPY from a server under a snapshot: its statements, its blocks of rows, and their text.

Which tables are copied, and into what, does not belong here (`lakeproof.snapshot`).

    snapshot.py  a snapshot exact at an LSN
    blocks.py    COPY to Arrow batches
    text.py      COPY's text format, compiled
    keys.py      the rows of single keys
    cost.py      what a snapshot costs
"""
