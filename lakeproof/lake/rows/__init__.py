"""Frames and columns of the lake: expressions over rows, and frames of rows, none of which is written here.

Adding changes up belongs to `lakeproof.lake.fold`, committing to `lakeproof.lake.delta`.

    columns.py        columns by exact name      exact.py            exact forms and digests
    landing_rows.py   a range's landing rows     conversion.py       rows under another schema
    change.py         the value NetChange        matching.py         joins on a key, multiset differences
    preconditions.py  rows that must exist       correction.py       what turns one state into another
    bucket_diff.py    buckets that differ        history_sum.py      a history's checksum
    refusal.py        errors within a plan       memory.py           how many rows Spark takes at once
    keys_in_memory.py keys of a range's rows, in Arrow alone
    file_rows.py      columns of the lake from landed files, in Arrow alone
    key_preconditions.py  rows that must exist, by counts alone
"""
