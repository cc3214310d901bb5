"""What the server's catalog says of tables, types and publications, read and made into values.

Findings about it are in `lakeproof.postgres.checks`.

    published.py     publications and their tables
    tables.py        one published table, as a value, and its rows
    queries.py       the SQL of both
    selection.py     names and patterns
    descriptions.py  comments and full types
    relations.py     a Relation message's version
    fingerprint.py   read the fingerprint
    origins.py       where a table came from
    empty.py         tables without a row, and what gave tables their files
    unchanged.py     a table since its snapshot
"""
