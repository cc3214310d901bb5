"""PostgreSQL values: which type each has in the lake, and the one caster from PostgreSQL's text to it.

Bytes of the protocol belong to `lakeproof.pgoutput`, the exact form of a lake value in Spark to `lakeproof.lake.rows.exact`.
"""
