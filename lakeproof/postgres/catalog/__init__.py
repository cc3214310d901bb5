"""What the server's catalog says of tables, types and publications, read and made into values.

Findings about it are in `lakeproof.postgres.checks`.

    published.py     publications and their tables
    tables.py        one published table, as a value
    queries.py       the SQL of both
    unpublished.py   columns that are not sent
    selection.py     names and patterns
    descriptions.py  comments and full types
    relations.py     a Relation message's version
    type_lines.py    a type as text
    fingerprint.py   read the fingerprint
    origins.py       where a table came from
    empty.py         tables without a row
    unchanged.py     a table since its snapshot
    files.py         what gave tables their files
    locks.py         who locks a published table
"""
