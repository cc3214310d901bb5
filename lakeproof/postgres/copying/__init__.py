"""COPY from a server under a snapshot: its statements, its blocks of rows, and their text.

The choice of tables and the files are in `lakeproof.snapshot`.

    snapshot.py  a snapshot exact at an LSN
    blocks.py    COPY to Arrow batches
    text.py      COPY's text format, compiled
    keys.py      the rows of single keys
    cost.py      what a snapshot costs
"""
