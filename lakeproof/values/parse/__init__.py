"""PostgreSQL's texts as Arrow columns: numbers, times, texts and arrays, out of spans of bytes.

The choice of a column's type does not belong here (`lakeproof.values.types`).
"""
