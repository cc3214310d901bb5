"""Frames and columns of the lake: expressions over rows, and frames of rows, none of which is written here.

Adding changes up belongs to `lakeproof.lake.fold`, committing to `lakeproof.lake.delta`.

    columns.py       columns by exact name, exact forms and digests
    landing_rows.py  a range's landing rows
    memory.py        how many rows Spark takes at once
    correction.py    what turns one state into another
    refusal.py       errors within a plan
    difference.py    what turns one state into another, in Arrow alone
    hashed.py        rows' hashes, and their sums by buckets, in Arrow alone
    history_ops.py   the kinds of history's rows that no change brought
    history_sum.py   a history's checksum
    change.py        the value NetChange; keys in memory, and the rows that they presuppose
    file_rows.py     a range's landed files and their changes, and columns of the lake from them, in Arrow alone
"""
