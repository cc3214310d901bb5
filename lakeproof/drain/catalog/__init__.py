"""The catalog beside the stream: looks at it, what they say of the stream's tables, and tables that come and go.

The reading of the catalog itself does not belong here (`lakeproof.postgres.catalog`).

    watch.py               polls the source's catalog
    readings.py            the readings around a position
    resolver.py            a Relation message's schema
    created_tables.py      tables whose every row was streamed
    empty_tables.py        tables that have no row: nothing of theirs is lost
    passing_partitions.py  partitions that came and went between two readings
    new_files.py           why a table has another file
    publications.py        which ones can be read
"""
