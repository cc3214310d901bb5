"""PostgreSQL's texts as Arrow columns: numbers, times, texts and arrays, out of spans of bytes.

The choice of a column's type does not belong here (`lakeproof.values.types`).

    spans.py    the usual texts, compiled
    numbers.py  booleans, integers, decimals
    texts.py    strings, bytes, validity
    times.py    dates and timestamps
    arrays.py   splits texts of arrays
"""
